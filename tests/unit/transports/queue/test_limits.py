"""A queue of limited length: what it drops, what it refuses, and which journals can be read."""

import json

import pytest

from ami.transports.objectstore.queue import snapshot
from ami.transports.objectstore.queue.commands import Ack, Claim, Configure, Enqueue, Purge, Return, Take
from ami.transports.objectstore.queue.limits import MAXLEN, QueueFullError
from ami.transports.objectstore.queue.state import State


class Queue:
    """A state that is given commands."""

    def __init__(self, *commands):
        self.state = State()
        self(*commands)

    def __call__(self, *commands):
        return self.state.apply(0.0, [command.wire()[0] for command in commands], 1, 0)

    def waiting(self) -> list[str]:
        entries = [entry for entry in self.state.entries.values() if entry.is_waiting]
        return [entry.id for entry in sorted(entries, key=lambda entry: (entry.priority, entry.order))]


def put(*names: str, **options) -> list[Enqueue]:
    return [Enqueue(name, b"x", **options) for name in names]


def test_the_first_in_line_is_buried_as_maxlen():
    queue = Queue(Configure(max_length=2), *put("a", "b", "c"))
    assert (queue.waiting(), {name: one.buried for name, one in queue.state.buried.items()}) == (
        ["b", "c"],
        {"a": MAXLEN},
    )


def test_the_first_in_line_is_forgotten_without_dead_letters():
    queue = Queue(Configure(keeps_buried=False, max_length=1), *put("a", "b"))
    assert (queue.waiting(), list(queue.state.entries)) == (["b"], ["b"])


def test_the_first_in_line_is_the_highest_priority():
    assert Queue(Configure(max_length=1), *put("high", priority=-5), *put("low")).waiting() == ["low"]


def test_a_returned_message_is_one_too_many():
    queue = Queue(Configure(keeps_buried=False, max_length=1), *put("a"), Claim(1, "me"), *put("b"))
    queue(Return("a"))
    assert queue.waiting() == ["b"]


def test_a_full_queue_answers_that_it_is_full_until_there_is_place():
    queue = Queue(Configure(max_length=1, rejects_publish=True))
    first, second = queue(*put("a", "b"))
    assert first is True
    assert isinstance(second, QueueFullError)
    assert queue(Claim(1, "me"), *put("c"))[1] is True
    assert queue(Ack("a"), Purge(), *put("d"), Take(1))[2] is True


def test_a_smaller_limit_drops_what_is_too_much():
    assert Queue(*put("a", "b", "c"), Configure(keeps_buried=False, max_length=1)).waiting() == ["c"]


@pytest.mark.parametrize("configure", [Configure(3, False), Configure(max_length=1, rejects_publish=True)])
def test_a_snapshot_keeps_the_limit(configure):
    state = Queue(configure).state
    assert snapshot.load(snapshot.dump(state)).limit == state.limit


def test_what_versions_without_limits_wrote_is_read():
    whole = json.loads(snapshot.dump(Queue(*put("a")).state))
    del whole["limit"]
    state = snapshot.load(json.dumps(whole).encode())
    state.apply(0.0, [["=", 5, True]], 1, 0)
    assert (state.delivery_limit, state.limit.messages, state.depth()) == (5, None, 1)
    assert Configure(5).wire()[0] == ["=", 5, True]
