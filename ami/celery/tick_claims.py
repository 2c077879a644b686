"""The port through which beats agree on who sends a tick; `config` connects it to the database.

Without it (another application) a beat sends every tick that is due, as Celery's does.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

#: What becomes of ticks that could not be sent, or not run, in time: nothing, one for all of them, or each.
NONE, ONE, ALL = MISFIRES = ("none", "one", "all")


@dataclass(frozen=True)
class Tick:
    """The last claimed tick of one entry of the schedule.

    ``entry`` is the key of the PeriodicTask, ``number`` counts its claimed ticks, 0: none yet. ``claimed_at`` is the
    wall clock's time of the claim, with `ALL` the time at which the tick was due, None before the first. ``runs`` is
    the entry's total run count with this tick. ``tries`` counts how often this tick was claimed again. ``misfire`` is
    the entry's policy, one of `MISFIRES`. ``age_seconds`` is how long ago it was claimed when it was read, by the
    database's clock, None if that is not known.
    """

    entry: int
    number: int = 0
    task_id: str = ""
    claimed_at: datetime | None = None
    runs: int = 0
    is_sent: bool = True
    tries: int = 0
    misfire: str = NONE
    age_seconds: float | None = field(default=None, compare=False)

    @property
    def identity(self) -> tuple[int, int, int]:
        """What differs between two claims, and between two tries to send one."""
        return self.entry, self.number, self.tries


class TickClaims(Protocol):
    """Claims that all beats of a deployment see. Every method may raise `django.db.Error`."""

    def states(self) -> dict[int, Tick]:
        """Return the last tick of each entry that has one."""

    def state(self, entry: int) -> Tick | None:
        """Return the last tick of one entry; None if the entry was deleted."""

    def add(self, entries: Collection[int]) -> None:
        """Make entries claimable that have no tick yet; those that were deleted meanwhile are left out."""

    def claim(self, tick: Tick, beat: str, *, is_first: bool) -> bool:
        """Claim ``tick``, and return False if another beat has claimed it or the tick before it is not sent yet.

        ``is_first``: the entry has not run since it was enabled; an unsent tick from before that is dropped.
        """

    def claim_again(self, tick: Tick, beat: str) -> Tick | None:
        """Take over a claimed tick that was not marked as sent; return it as changed, None if another beat has."""

    def mark_sent(self, tick: Tick) -> None:
        """Record that the message of ``tick`` is with the broker; a later try than the first counts as a repeat."""

    def unsent(self) -> list[Tick]:
        """Return the claimed ticks of enabled entries that are not marked as sent."""

    def ended(self, task_ids: Collection[str]) -> None:
        """Record that these tasks have ended; those that are the last tick of no entry are left out."""

    def why_withheld(self, tick: Tick) -> str:
        """Return why no tick is sent after ``tick``: it still waits or runs. Empty if not, or if it is not the last."""

    def beat_started(self, beat: str) -> None:
        """Record that a beat runs, under a name of its own, and remove the ticks of deleted entries."""

    def beat_alive(self, beat: str) -> None:
        """Record that a beat ticks."""

    def beat_stopped(self, beat: str) -> None:
        """Forget a beat that ends."""


_claims: TickClaims | None = None


def connect(claims: TickClaims | None) -> None:
    global _claims
    _claims = claims


def connected() -> TickClaims | None:
    return _claims
