"""Whether a queue keeps its promise: tasks start within the row's wait target."""

from collections.abc import Sequence
from dataclasses import dataclass

from ami.telemetry import counts
from ami.telemetry.snapshots.shape import Stop

KEPT, BROKEN, UNKNOWN, NONE = "kept", "broken", "unknown", "none"

#: A promise is broken by more than this share of the tasks, and by no fewer than so many: one slow start is none.
SHARE, LEAST = 0.05, 3


@dataclass(frozen=True)
class Promise:
    """``state`` is one of the four constants; ``words`` a sentence for the page."""

    state: str
    words: str


def judge(
    target: float | None,
    waits: Sequence[float],
    waiting: int | None,
    at_least: float,
    *,
    paused: Stop | None,
) -> Promise:
    """Judge by the waits of the last minutes, in buckets, and by what waits now; seconds throughout.

    The oldest message has surely waited ``at_least`` so long: a largest possible age breaks no promise.
    """
    if target is None:
        return Promise(NONE, "no wait target")
    if paused and waiting:
        return Promise(BROKEN, f"paused: {waiting:,} messages wait")
    if at_least > target:
        return Promise(BROKEN, f"a message has waited for {duration(at_least)}, the target is {duration(target)}")
    whole = sum(waits)
    if not whole:
        words = "nothing has run in the last five minutes" if not waiting else "what waits has not begun yet"
        return Promise(UNKNOWN, words)
    late = counts.above(waits, target)
    if late >= LEAST and late > whole * SHARE:
        return Promise(BROKEN, f"{late / whole:.0%} began later than {duration(target)}")
    return Promise(KEPT, f"{1 - late / whole:.0%} began within {duration(target)}")


def duration(seconds: float) -> str:
    """Return a time as people read it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
