"""Decides what is the matter with a worker, from its row and a ping, without clock, database or broker.

| beat | loop turned | broker frame | ping | verdict |
|---|---|---|---|---|
| fresh | lately | lately | | well, however long its tasks run |
| fresh | not | | | wedged: it ends itself |
| fresh | lately | not | | cut off from the broker |
| stale | | | answers | its database is away |
| stale | | | unknown | unknown: the broker cannot be asked, or it was silent once |
| stale | not, a solo worker's task runs | | none | its database is away if its process is seen to run; else unknown |
| stale | | | none | dead or frozen |
"""

from dataclasses import dataclass
from enum import StrEnum

#: Seconds without a beat by the database's clock after which a worker is stale; it beats every ten.
STALE_SECONDS = 20.0
#: From here on it is pinged: when it is stale it must have been silent at two looks.
SUSPECT_SECONDS = 14.0
LOOP_SECONDS = 30.0
FRAME_SECONDS = 60.0


class Verdict(StrEnum):
    """The values are what the worker's row and the operators' tables show."""

    WELL = ""
    WEDGED = "wedged"
    CUT_OFF = "cut off"
    DATABASE_AWAY = "database away"
    UNKNOWN = "unknown"
    DEAD = "dead"


#: Those whose connection is closed, so that the broker delivers again what they held.
CLOSED = frozenset({Verdict.DEAD, Verdict.CUT_OFF})


@dataclass(frozen=True)
class Facts:
    """What is known about a worker; seconds. ``answers``: whether it answers pings, None where that is unknown.

    ``is_running``: whether its process is there and not stopped, None where this process cannot see it.
    ``loop_allowance_seconds``: how long a solo worker's task may block its loop. ``frame_age_seconds`` is None on a
    broker without frames. A worker that is not connected is connecting again, and its loop does not turn.
    """

    beat_age_seconds: float
    is_connected: bool
    loop_age_seconds: float
    loop_allowance_seconds: float
    frame_age_seconds: float | None
    answers: bool | None = None
    is_running: bool | None = None


def is_stale(facts: Facts) -> bool:
    """Whether the verdict depends on a ping."""
    return facts.beat_age_seconds >= STALE_SECONDS


def is_suspect(facts: Facts) -> bool:
    """Whether the worker has missed a beat and is worth a ping."""
    return facts.beat_age_seconds >= SUSPECT_SECONDS


def decide(facts: Facts) -> Verdict:
    """Return the verdict of the table above."""
    if is_stale(facts):
        if facts.answers is None:
            return Verdict.UNKNOWN
        if facts.answers:
            return Verdict.DATABASE_AWAY
        if facts.beat_age_seconds < facts.loop_allowance_seconds and facts.is_running is not False:
            return Verdict.DATABASE_AWAY if facts.is_running else Verdict.UNKNOWN
        return Verdict.DEAD
    if not facts.is_connected:
        return Verdict.WELL
    if facts.loop_age_seconds - facts.loop_allowance_seconds >= LOOP_SECONDS:
        return Verdict.WEDGED
    if facts.frame_age_seconds is not None and not facts.loop_allowance_seconds:
        return Verdict.CUT_OFF if facts.frame_age_seconds >= FRAME_SECONDS else Verdict.WELL
    return Verdict.WELL
