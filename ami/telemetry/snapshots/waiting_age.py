"""How old the oldest message of a queue is, by what was seen before: RabbitMQ does not tell.

A queue is read in order. So what waited at a moment has all been started once as many tasks have started since; until
then one of them still waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """How many messages waited at ``at``, or at most in the ``span_seconds`` from there on, and how many tasks had been
    started since the moment before it, or in that span.
    """

    at: float
    waiting: int
    started: int = 0
    span_seconds: float = 0.0


def bounds(
    now: float, waiting: int, seen: Sequence[Seen], started_since: float = 0, lag_seconds: float = 0.0
) -> tuple[float | None, float]:
    """Return (at most, at least) how many seconds the oldest message has waited; None where no bound is known.

    ``seen`` is in order of time, the oldest first. At most ``started_since`` tasks have started since the last of them,
    as known ``lag_seconds`` ago: what has started since then is not known.
    """
    if not waiting:
        return 0.0, 0.0
    at_most: float | None = None
    at_least, started, was_empty = 0.0, 0, False
    for moment in reversed(seen):
        if at_most is None and started >= moment.waiting:
            at_most = max(0.0, now - moment.at)
        was_empty = was_empty or not moment.waiting
        if not was_empty and moment.waiting > started + started_since:
            at_least = max(at_least, now - lag_seconds - moment.at - moment.span_seconds)
        started += moment.started
    return at_most, at_least
