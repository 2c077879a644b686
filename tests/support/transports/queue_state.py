"""A queue's state that commands are applied to at moments of the test's own, without a journal."""

from collections.abc import Sequence
from typing import Any

from ami.transports.objectstore.queue.commands import Claim, Command, Enqueue
from ami.transports.objectstore.queue.entry_index import LINE_BYTES
from ami.transports.objectstore.queue.state import State


class AppliedState:
    """Each call is one batch, laid down one after the other in ``segment``."""

    def __init__(self, *ids: str, at: float = 0.0) -> None:
        self.state = State()
        self.segment = 1
        self.offset = 0
        if ids:
            self(at, *(Enqueue(each, each.encode()) for each in ids))

    def __call__(self, moment: float, *commands: Command) -> Any:
        """Apply one batch; return its answer, or all of them where there are several commands."""
        wires = [command.wire() for command in commands]
        answers = self.state.apply(moment, [line for line, _ in wires], self.segment, self.offset)
        self.offset += 50 + sum(len(payload) for _, payload in wires)
        return answers[0] if len(answers) == 1 else answers

    def claim(self, moment: float, limit: int = 1, owner: str = "worker", seconds: float | None = 60.0) -> list[str]:
        """Claim, and return the ids."""
        return [entry.id for entry in self(moment, Claim(limit, owner, seconds))]

    def waiting(self) -> list[str]:
        """Return the ids of what waits, in the order in which it would be claimed."""
        return line(self.state)


def line(state: State) -> list[str]:
    """Return the ids of what waits, by what a message says about itself."""
    waiting = [entry for entry in state.entries.values() if entry.is_waiting]
    return [entry.id for entry in sorted(waiting, key=lambda entry: (entry.priority, entry.order))]


def picture(state: State, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return all that a state holds, in an order that does not depend on how it came about."""
    fields = {
        "version": state.version,
        "now": state.now,
        "order": state.order,
        "delivery_limit": state.delivery_limit,
        "keeps_buried": state.keeps_buried,
        "acknowledged": list(state.acknowledged.items()),
        "entries": [entry.dump() for entry in state.entries.values()],
        "leased": sorted(state.leased),
        "buried": sorted(state.buried),
        "in_segment": dict(sorted(state.in_segment.items())),
        "next_due": state.next_due(),
        "depth": state.depth(),
    }
    return {name: value for name, value in fields.items() if name not in without}


def assert_consistent(state: State) -> None:
    """What a state keeps beside its messages is what they say."""
    entries = state.entries.values()
    assert {entry.id: entry for entry in entries} == state.entries
    assert state.leased == {entry.id: entry for entry in entries if entry.owner is not None}
    assert state.buried == {entry.id: entry for entry in entries if entry.buried is not None}
    assert not state.leased.keys() & state.buried.keys()
    assert state.depth() == len(line(state))
    in_segment: dict[int, int] = {}
    for entry in entries:
        in_segment[entry.segment] = in_segment.get(entry.segment, 0) + entry.length + LINE_BYTES
    assert state.in_segment == in_segment
    ends = [entry.until for entry in state.leased.values() if entry.until is not None]
    assert state.next_due() == min(ends, default=None)
    assert all(end > state.now for end in ends)
    overdue = [entry for entry in entries if entry.is_waiting and entry.expires is not None]
    for moment in {entry.expires for entry in overdue}:
        assert state.is_overdue(moment)
    assert not state.is_overdue(state.now)
    assert not state.entries.keys() & state.acknowledged.keys()
