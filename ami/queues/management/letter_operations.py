"""The sub-commands of ``manage.py queues letters`` that change something: replay, edit, discard."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import current_app

from ami.queues.letters import editing, found, replays, rows
from ami.queues.letters.selection import Selection, refuse_unknown_queue
from ami.queues.management.confirmation import require_agreement, require_terminal
from ami.queues.management.result import Result, listed
from ami.queues.models import Replay
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from ami.topology.topology import Topology

PROGRESS_SECONDS = 2.0


def selected(topology: Topology, options: dict[str, Any]) -> Selection:
    """Return which letters the options name.

    Raises:
        Refused: the queue keeps no dead letters.
    """
    refuse_unknown_queue(topology, options["queue"])
    names = ("queue", "task", "cause", "search")
    return Selection(ids=tuple(options["ids"]) or None, **{name: options[name] for name in names})


def _replay(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    selection = selected(topology, options)
    if planned := _planned("replay", selection, options):
        return planned
    given = {name: options[name] for name in ("why", "to", "rate", "limit")}
    begun = replays.begin(topology, selection, operator, **given)
    return _replayed(replays.in_background(begun)) if options["background"] else _publish(topology, begun, operator)


def _resume(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    return _publish(topology, replays.resume(options["replay"], operator, why=options["why"]), operator)


def _publish(topology: Topology, begun: Replay, operator: Operator) -> Result:
    said = time.monotonic()

    def progress(replay: Replay) -> None:
        nonlocal said
        if time.monotonic() - said >= PROGRESS_SECONDS:
            said = time.monotonic()
            print(f"replay {replay.pk}: {replay.done} of {replay.total}", file=sys.stderr)

    with _signals() as is_stopped, current_app.connection_for_write() as connection:
        replay = replays.finish(topology, connection, begun, progress, is_stopped)
        if is_stopped() and replay.state == Replay.State.RUNNING:
            replay = replays.stop(replay.pk, operator, why="interrupted")
    return _replayed(replay)


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM and SIGINT end the work between two batches."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    ending = (signal.SIGTERM, signal.SIGINT)
    before = {each: signal.signal(each, lambda number, _: seen.append(number)) for each in ending}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _replayed(replay: Replay) -> Result:
    closing = replay.error and f"Stopped: {replay.error}."
    if replay.state == Replay.State.STOPPED:
        closing = f"{closing} 'manage.py queues letters resume {replay.pk}' goes on.".strip()
    code = int(bool(replay.error))
    return listed([replay], SHOWN, REPLAY_COLUMNS, replays.as_dict(replay), closing, code)


REPLAY_COLUMNS = ("replay", "state", "done", "of", "letters", "rate", "to", "by", "why", "error")


def _which(replay: Replay) -> Selection:
    return Selection.of(replay.selection)


SHOWN = ("pk", "state", "done", "total", _which, "rate", "destination?", "by", "why", "error")


def _replays(_: Topology, __: Operator, ___: dict[str, Any]) -> Result:
    found = list(Replay.objects.order_by("-pk")[:50])
    return listed(found, SHOWN, REPLAY_COLUMNS, [replays.as_dict(each) for each in found])


def _stop(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    return _replayed(replays.stop(options["replay"], operator, why=options["why"]))


def _edit(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    if options["new_args"] is None and options["kwargs"] is None:
        raise Refused("Give --args, --kwargs or both.")
    row = editing.edit(options["letter"], options["new_args"], options["kwargs"], operator, why=options["why"])
    if options["keep"]:
        return Result(found.as_dict(row), [(row.pk, row.task, row.arguments)], ("letter", "task", "arguments"))
    selection = Selection(ids=(row.pk,))
    return _publish(topology, replays.begin(topology, selection, operator, why=options["why"]), operator)


def _discard(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    selection = selected(topology, options)
    if planned := _planned("discard", selection, options):
        return planned
    count = rows.discard_recorded(selection, operator, why=options["why"], limit=options["limit"])
    return Result({"discarded": count}, [(str(selection), count)], ("letters", "discarded"))


def _planned(verb: str, selection: Selection, options: dict[str, Any]) -> Result | None:
    """Return what would be reached for --dry-run; else ask, unless --yes or single letters are given."""
    count = selection.count(options["limit"])
    if options["dry_run"]:
        return Result({f"would_{verb}": count}, [(str(selection), count)], ("letters", f"would {verb}"))
    if not options["yes"] and not selection.ids:
        require_terminal(f"queues letters {verb}")
        require_agreement(f"queues letters {verb}: go on?", {str(selection): count})
    return None


RUNS: dict[str, Callable[..., Result]] = {
    "replay": _replay,
    "replays": _replays,
    "stop": _stop,
    "resume": _resume,
    "edit": _edit,
    "discard": _discard,
}
