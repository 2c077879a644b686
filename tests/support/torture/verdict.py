"""Compares what was confirmed with what was delivered."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.torture.diary import read
from tests.support.torture.plan import DEAD_LETTERS, Kind

#: Kinds whose messages end in the dead-letter queue, whether or not they were consumed before.
DIES = (Kind.REJECTED, Kind.EXPIRED)


@dataclass
class Verdict:
    """``lost``, ``unflagged`` and ``damaged`` hold tokens: the ids of publishes."""

    confirmed: int
    rejected: int
    redelivered: int
    dead_letters: int
    lost: list[str]
    unflagged: list[str]
    damaged: list[str]
    unknown: list[str]


def judge(diaries: Iterable[Path]) -> Verdict:
    """Return the verdict on all processes; the last one drained the dead-letter queue."""
    lines = [line for path in diaries for line in read(path)]
    tried = {line[1] for line in lines if line[0] == "tried"}
    confirmed = {line[1]: Kind(line[2]) for line in lines if line[0] == "confirmed"}
    delivered = [line for line in lines if line[0] == "delivered"]
    alive = {token for _, token, queue, _ in delivered if queue != DEAD_LETTERS.name}
    dead = {token for _, token, queue, _ in delivered if queue == DEAD_LETTERS.name}
    firsts = Counter((token, queue) for _, token, queue, flag in delivered if flag == "first")
    return Verdict(
        confirmed=len(confirmed),
        rejected=sum(line[0] == "rejected" for line in lines),
        redelivered=sum(flag == "again" for _, _, _, flag in delivered),
        dead_letters=len(dead),
        lost=[token for token, kind in confirmed.items() if token not in dead and (kind in DIES or token not in alive)],
        unflagged=[token for (token, _), count in firsts.items() if count > 1],
        damaged=[line[1] for line in lines if line[0] == "damaged"],
        unknown=sorted((alive | dead) - tried),
    )
