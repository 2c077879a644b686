"""An entry of beat's schedule: an interval counts by the monotonic clock, everything else by the wall clock."""

import math
from datetime import datetime, timedelta
from typing import Any

from celery import schedules
from celery.utils.log import get_logger
from celery.utils.time import maybe_make_aware
from django_celery_beat.schedulers import ModelEntry

from ami.celery.clock import Clock, SystemClock
from ami.celery.hourly_crontab import in_real_time
from ami.celery.tick_claims import ALL, NONE, Tick

logger = get_logger(__name__)

#: A last run that lies further ahead than this is a clock that was wrong, not one that was put back.
FUTURE_LIMIT = timedelta(days=1)
#: Seconds after which a one-off entry whose tick is claimed and not sent is looked at again.
UNSENT_SECONDS = 5.0


class Entry(ModelEntry):
    """django-celery-beat's entry, which goes on when the clock is stepped and knows its last claimed tick.

    A step back silenced an interval entry for as long as the step. Here it waits for what is left of its interval by
    the monotonic clock, and after a restart for one interval at most. A crontab, solar or clocked entry does not run
    again for times that the wall clock repeats; one of every hour does where summer time ends.

    With the policy `ALL` each due time is sent once, late ones too, one after the other. The due times of an interval
    entry are then points of the wall clock, like a crontab's: each is the interval after the one before.

    ``tick`` is the last claimed tick as this beat knows it; None: not read yet. ``is_new``: it has not run since it was
    enabled.
    """

    clock: Clock = SystemClock()
    last_run_at: Any
    schedule: Any
    _ran_at: float

    def __init__(self, model: Any, app: Any = None) -> None:
        self.tick: Tick | None = None
        self.is_new = model.last_run_at is None
        self._since = model.date_changed if self.is_new else None
        try:
            super().__init__(model, app=app)
        except RecursionError:  # Beat leaves out what raises a ValueError, and goes on with the others.
            logger.error("Entry left out, its arguments are nested too deeply: %s", model.name)
            raise ValueError(model.name) from None
        if self.schedule is not None:
            self.schedule = in_real_time(self.schedule)
            self.schedule.nowfun = self.clock.now
        self._count_from(self.last_run_at)

    @property
    def is_interval(self) -> bool:
        return isinstance(self.schedule, schedules.schedule)

    def is_due(self) -> Any:
        """Return whether it is due, and the seconds after which to ask again.

        django-celery-beat disables a one-off entry that has run; here not before the message of that run is sent.
        """
        if self.has_run_once and self.tick and not self.tick.is_sent:
            return schedules.schedstate(is_due=False, next=UNSENT_SECONDS)
        if self.misfire == ALL:
            self._begin_at_start_time()
        elif self.is_interval:
            self.last_run_at = self.clock.now() - timedelta(seconds=self.clock.monotonic() - self._ran_at)
        elif maybe_make_aware(self.last_run_at) - self.clock.now() > FUTURE_LIMIT:
            self.last_run_at = self.clock.now()
        return super().is_due()

    @property
    def misfire(self) -> str:
        """Return what becomes of ticks that are late, one of `tick_claims.MISFIRES`."""
        return self.tick.misfire if self.tick else NONE

    @property
    def due(self) -> datetime:
        """Return the time that a claim of the tick that is due has: when it was due with `ALL`, else now."""
        now = self.clock.now()
        return now + self._remaining(self.last_run_at, now) if self.misfire == ALL else now

    @property
    def seconds_to_next(self) -> float:
        """Return for how long the tick after the claimed one is not due, 0 if it is late as well."""
        ran_at = self.tick.claimed_at if self.tick else None
        return max(0.0, self._remaining(ran_at or self.last_run_at, self.clock.now()).total_seconds())

    def _remaining(self, last_run_at: datetime, now: datetime) -> timedelta:
        self.schedule.nowfun = lambda: now  # The same for both sides of the difference.
        try:
            last = maybe_make_aware(last_run_at).astimezone(self.app.timezone)
            remaining: timedelta = self.schedule.remaining_estimate(last)
            return remaining
        finally:
            self.schedule.nowfun = self.clock.now

    @property
    def has_run_once(self) -> bool:
        """Return whether it is a one-off entry whose tick was claimed."""
        return bool(self.model.one_off and self.model.enabled and self.model.total_run_count > 0)

    def resume(self, tick: Tick | None, before: "Entry | None") -> None:
        """Go on where the deployment (``tick``) and this process (``before``) are; both may be None."""
        if tick and tick.claimed_at and not self.is_new:
            self._take_over(tick)
        self.tick = tick
        if before is not None and before._phase == self._phase:
            self._ran_at = before._ran_at

    def follow(self, tick: Tick | None) -> None:
        """Go on from another beat's tick: take over its time and its count of runs."""
        before, self.tick = self.tick, tick
        if tick and tick.claimed_at and not (before and before.number == tick.number):
            self._take_over(tick)

    def skip(self) -> None:
        """Let the tick that is due pass: the next one is due as if this one had been sent."""
        self.last_run_at, self._ran_at = self.clock.now(), self.clock.monotonic()

    @property
    def pace(self) -> float:
        """Return the seconds between two ticks of an interval entry; infinite for the others."""
        return float(self.schedule.seconds) if self.is_interval else math.inf

    @property
    def _phase(self) -> tuple[int, datetime | None]:
        return self.tick.number if self.tick else 0, self._since

    def _begin_at_start_time(self) -> None:
        """Let the first tick be the first one from the start time on; django-celery-beat begins decades before it."""
        first = self.model.start_time
        if first and maybe_make_aware(self.last_run_at) < first:
            before = self.schedule.run_every if self.is_interval else timedelta(microseconds=1)
            self.last_run_at = max(maybe_make_aware(self.last_run_at), first - before)

    def _take_over(self, tick: Tick) -> None:
        self.is_new, self._since = False, None
        self.model.last_run_at, self.model.total_run_count = tick.claimed_at, tick.runs
        self.total_run_count = tick.runs
        self._count_from(tick.claimed_at)
        if tick.age_seconds is not None:  # By a clock that is not stepped with this one.
            self._ran_at = self.clock.monotonic() - max(tick.age_seconds, 0.0)

    def _count_from(self, last_run_at: Any) -> None:
        """Set the last run; by the monotonic clock it is no younger than now."""
        self.last_run_at = last_run_at
        age = (self.clock.now() - maybe_make_aware(last_run_at)).total_seconds()
        self._ran_at = self.clock.monotonic() - max(age, 0.0)

    def _default_now(self) -> datetime:
        return self.clock.now().astimezone(self.app.timezone)

    def __copy__(self) -> "Entry":
        """Return a shallow copy; Celery's way to copy fits its own entries only."""
        copied: Entry = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __next__(self) -> "Entry":
        following: Entry = super().__next__()
        following.tick = self.tick
        if self.misfire == ALL and self.tick and self.tick.claimed_at:
            following.model.last_run_at = self.tick.claimed_at
            following._count_from(self.tick.claimed_at)
        return following
