"""One beat's side of the claims: claims what is due, marks what was sent, and sends again what another beat left."""

from dataclasses import replace

from celery.utils import uuid
from celery.utils.log import get_logger
from django.db import Error

from ami.celery import batch_writes
from ami.celery.beat_entry import Entry
from ami.celery.clock import Clock
from ami.celery.tick_claims import Tick, TickClaims

logger = get_logger(__name__)

#: Seconds between two looks at the claims of other beats; as often this one shows that it runs.
LOOK_SECONDS = 10.0
#: Seconds for which another beat may be publishing: four tries to connect (4 s each) and one confirmation (10 s).
PATIENCE_SECONDS = 30.0
#: Seconds after which this beat tries again what failed; doubled for each further try of a tick.
RETRY_SECONDS = 5.0
#: The longest pause between two tries of a tick.
LONGEST_RETRY_SECONDS = 300.0


def retry_seconds(tick: Tick, pace: float = LONGEST_RETRY_SECONDS) -> float:
    """Return the pause before the next try of a tick, at most ``pace``: the seconds between two ticks of its entry."""
    longest = max(RETRY_SECONDS, min(pace, LONGEST_RETRY_SECONDS))
    return min(RETRY_SECONDS * 2.0 ** min(tick.tries, 10), longest)


def _refused(tick: Tick, error: Exception) -> None:
    logger.error("Tick not marked as sent, the database refuses it: %r", error, extra={"task_id": tick.task_id})


class ClaimedTicks:
    """Claims ticks for the beat ``name``. Times are those of the monotonic clock.

    Methods without a word about errors log those of the database and go on: what they missed is done at a later tick.
    """

    def __init__(self, claims: TickClaims, clock: Clock, name: str) -> None:
        self.name = name
        self._claims, self._clock = claims, clock
        self._unsent: dict[tuple[int, int, int], tuple[Tick, float]] = {}
        self._unmarked: list[Tick] = []
        self._failed: set[tuple[int, int]] = set()
        self._look_at = -1.0
        self._is_known = False

    def states(self) -> dict[int, Tick]:
        """Return the last tick of each entry that has one. Read it before the entries: see `add`.

        Raises:
            django.db.Error: the database did not answer.
        """
        return self._claims.states()

    def add(self, entries: set[int]) -> dict[int, Tick]:
        """Return the ticks of entries that had none.

        If another beat has claimed one meanwhile, this number is outdated, and the claim of this beat fails as it must.

        Raises:
            django.db.Error: the database did not answer.
        """
        if entries:
            self._claims.add(entries)
        return {entry: Tick(entry) for entry in entries}

    def claim(self, entry: Entry) -> Tick | None:
        """Claim the tick that is due; None if another beat has it, and then ``entry`` follows that one.

        None as well for an entry without a known tick: it was deleted, or the schedule is about to be read.

        Raises:
            django.db.Error: the database did not answer.
        """
        key = entry.model.pk
        known = entry.tick
        if known is None:
            return None
        runs = entry.model.total_run_count + 1
        tick = replace(
            known, number=known.number + 1, task_id=uuid(), claimed_at=entry.due, runs=runs, is_sent=False, tries=0
        )
        if self._claims.claim(tick, self.name, is_first=entry.is_new):
            entry.tick = tick
            return tick
        entry.follow(self._claims.state(key))
        if entry.tick and not entry.tick.is_sent:
            self._watch(entry.tick, max(PATIENCE_SECONDS, retry_seconds(entry.tick, entry.pace)))
        return None

    def why_withheld(self, entry: Entry) -> str:
        """Return why the tick that is due is not sent, empty if it is.

        Raises:
            django.db.Error: the database did not answer.
        """
        return self._claims.why_withheld(entry.tick) if entry.tick and entry.tick.number else ""

    def sent(self, tick: Tick) -> None:
        """Mark a tick whose message is with the broker."""
        self._unsent.pop(tick.identity, None)
        self._failed.discard((tick.entry, tick.number))
        self._unmarked.append(tick)
        self._mark()

    def failed(self, tick: Tick, pace: float) -> float:
        """Note a tick that could not be published, and return the seconds after which this beat tries it again."""
        seconds = retry_seconds(tick, pace)
        self._failed.add((tick.entry, tick.number))
        self._unsent[tick.identity] = tick, self._clock.monotonic() + seconds
        return seconds

    def has_failed(self, tick: Tick) -> bool:
        """Return whether this beat has tried in vain to publish the tick."""
        return (tick.entry, tick.number) in self._failed

    def read_again(self, entry: Entry) -> None:
        """Read the entry's last tick.

        Raises:
            django.db.Error: the database did not answer.
        """
        entry.follow(self._claims.state(entry.model.pk))

    def look(self) -> None:
        """Show that this beat runs, and look for ticks that were claimed and not sent; every ``LOOK_SECONDS``."""
        self._mark()
        if self._clock.monotonic() < self._look_at:
            return
        self._look_at = self._clock.monotonic() + LOOK_SECONDS
        try:
            (self._claims.beat_alive if self._is_known else self._claims.beat_started)(self.name)
            self._is_known = True
            left = {tick.identity: tick for tick in self._claims.unsent()}
        except Error as error:
            logger.error("Claims of ticks not read: %s", error)
            return
        ours = {tick.identity for tick in self._unmarked}
        self._unsent = {key: seen for key, seen in self._unsent.items() if key in left}
        for key in left.keys() - ours:
            self._watch(left[key], max(PATIENCE_SECONDS, retry_seconds(left[key])))
        self._failed &= {(entry, number) for entry, number, _ in left}

    def overdue(self) -> list[Tick]:
        """Return the ticks that nobody has sent in time; asks no database."""
        now = self._clock.monotonic()
        return [tick for tick, at in self._unsent.values() if at <= now]

    def claim_again(self, tick: Tick) -> Tick | None:
        """Take over a tick of `overdue`; None if another beat did, or the database does not answer."""
        self._unsent.pop(tick.identity, None)
        try:
            return self._claims.claim_again(tick, self.name)
        except Error as error:
            logger.error("Tick not claimed again: %s", error)
            self._unsent[tick.identity] = tick, self._clock.monotonic() + RETRY_SECONDS
            return None

    def close(self) -> None:
        self._mark()
        try:
            self._claims.beat_stopped(self.name)
        except Error as error:
            logger.error("End of beat not recorded: %s", error)

    def _watch(self, tick: Tick, seconds: float) -> None:
        self._unsent.setdefault(tick.identity, (tick, self._clock.monotonic() + seconds))

    def _mark(self) -> None:
        try:
            while self._unmarked:
                batch_writes.write(self._unmarked[:1], lambda one: self._claims.mark_sent(one[0]), _refused)
                self._unmarked.pop(0)
        except Error as error:
            logger.error("Tick not marked as sent: %s", error)
