"""Beat's scheduler: django-celery-beat's, which claims each tick, keeps its pace when the clock is stepped, and shows
that it lives.
"""

import copy
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from celery.schedules import schedstate
from celery.utils.log import get_logger
from django.db import Error
from django_celery_beat.schedulers import DatabaseScheduler

from ami.celery import answer_limits, beat_entry, outages, tick_claims
from ami.celery.beat_variables import BeatVariables
from ami.celery.claimed_ticks import RETRY_SECONDS, ClaimedTicks
from ami.celery.clock import Clock, SystemClock
from ami.celery.orderly_end import OrderlyEnd
from ami.celery.origin import BEAT
from ami.celery.process_name import name_of_this_process
from ami.celery.sweep_thread import SweepThread
from ami.celery.tick_claims import ALL, NONE, ONE, Tick
from ami.celery.watchdog import Watchdog
from ami.environment.reader import read
from ami.topology.router import ORIGIN_HEADER

logger = get_logger(__name__)

#: A wall clock that gains or loses so many seconds on the monotonic one was stepped.
STEP_SECONDS = 1.0
#: A statement that the database does not answer is given up after so many seconds, well before the watchdog ends beat.
ANSWER_SECONDS = 10.0
#: Seconds after which a tick that another beat has claimed, and not sent, is looked at again.
PENDING_SECONDS = 1.0
#: Seconds after which a tick is looked at again that waits for the end of its entry's last one.
WITHHELD_SECONDS = 5.0
AGAIN = "Tick of %s was not marked as sent, sending it again: task id %s"


class Scheduler(DatabaseScheduler):
    """Sends each tick with the origin ``beat``, claimed through `tick_claims`, and touches a file after every tick.

    Every beat asks for every tick. A tick is claimed, then published with the task id of the claim, then marked as
    sent: one beat wins the claim, the others follow its phase. What a killed beat left goes out again with the same
    task id. While the database does not answer nothing can be claimed, so nothing is sent; afterwards each entry that
    is due is sent once.

    A beat that is alive but frozen (incident 17: 4.6 days) stops touching ``ANTENNA_BEAT_TICK_FILE``; the container's
    health check looks at that file's age. An unhealthy container is not restarted for that, so a watchdog ends a beat
    that has finished no tick for ``ANTENNA_BEAT_PATIENCE_SECONDS`` beyond its announced wait. Waiting for an
    unreachable broker does not count as frozen.
    """

    Entry = beat_entry.Entry
    clock: Clock = SystemClock()

    def __init__(self, *args: Any, lazy: bool = False, name: str = "", **kwargs: Any) -> None:
        self._variables = read(BeatVariables, os.environ)
        self._watchdog = Watchdog(self._variables.antenna_beat_patience_seconds)
        claims = tick_claims.connected()
        self._ticks = ClaimedTicks(claims, self.clock, name or name_of_this_process()) if claims else None
        self._sweep = SweepThread(kwargs.get("app") or (args[0] if args else None), name or name_of_this_process())
        self._claimed: Tick | None = None
        self._withheld: set[str] = set()
        self._offset = self._wall_offset()
        self._end = OrderlyEnd()
        if not lazy:
            answer_limits.limit(ANSWER_SECONDS)
            self._end.install()
            self._watchdog.start()
            self._sweep.start()
        super().__init__(*args, lazy=lazy, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        with self._end.work():
            self._notice_step()
            self._send_again()
            seconds: float = super().tick(*args, **kwargs)
            if self._ticks:
                self._ticks.look()
            if path := self._variables.antenna_beat_tick_file:
                Path(path).touch()
            self._watchdog.alive(seconds)
        return seconds

    def sync(self) -> None:
        with self._end.work():
            super().sync()

    def is_due(self, entry: beat_entry.Entry) -> Any:
        """Return whether to send ``entry`` now, which is when this beat has claimed its tick, and when to ask again."""
        if self._ticks and entry.has_run_once:
            try:
                self._ticks.read_again(entry)  # It is about to be disabled: is its message sent?
            except Error as error:
                logger.error("Tick of %s not read, trying again in %s s: %s", entry.name, RETRY_SECONDS, error)
                return schedstate(is_due=False, next=RETRY_SECONDS)
        state = super().is_due(entry)
        if not state.is_due or self._ticks is None:
            return state
        _ = self.producer  # Connect first: no claim waits for the broker.
        try:
            if why := self._ticks.why_withheld(entry) if entry.misfire != ALL else "":
                return self._withhold(entry, why)
            self._withheld.discard(entry.name)
            self._claimed = self._ticks.claim(entry)
        except Error as error:
            logger.error("Tick of %s not claimed, trying again in %s s: %s", entry.name, RETRY_SECONDS, error)
            return schedstate(is_due=False, next=RETRY_SECONDS)
        if self._claimed:
            return schedstate(is_due=True, next=entry.seconds_to_next) if entry.misfire == ALL else state
        state = super().is_due(entry)
        return schedstate(is_due=False, next=PENDING_SECONDS if state.is_due else state.next)

    def _withhold(self, entry: beat_entry.Entry, why: str) -> Any:
        """Let a due tick pass, or wait with `ONE`: at most one tick of an entry waits or runs."""
        if entry.name not in self._withheld:
            logger.warning("Ticks of %s withheld: %s", entry.name, why)
            self._withheld.add(entry.name)
        if entry.misfire == ONE:
            return schedstate(is_due=False, next=WITHHELD_SECONDS)
        entry.skip()
        return schedstate(is_due=False, next=super().is_due(entry).next)

    def reserve(self, entry: beat_entry.Entry) -> beat_entry.Entry:
        """Return the entry as it goes on; the schedule has it from now on, so that a new heap is made of it."""
        following: beat_entry.Entry = super().reserve(entry)
        self._schedule[following.name] = following
        return following

    def apply_async(self, entry: beat_entry.Entry, *args: Any, **kwargs: Any) -> Any:
        tick, self._claimed = self._claimed, None
        message = copy.copy(entry)  # The entry itself stays equal to what the schedule compares it with.
        message.options = {**entry.options, "headers": {**(entry.options.get("headers") or {}), ORIGIN_HEADER: BEAT}}
        if entry.misfire != NONE:
            message.options.pop("expires", None)
        if not (self._ticks and tick):
            return super().apply_async(message, *args, **kwargs)
        message.options["task_id"] = tick.task_id
        try:
            result = super().apply_async(message, *args, **kwargs)
        except Exception as error:
            is_known = self._ticks.has_failed(tick)
            seconds = self._ticks.failed(tick, entry.pace)
            if not is_known:
                raise  # Celery logs it with its traceback: once is enough.
            logger.error("Message Error: tick of %s not sent, trying again in %.0f s: %s", entry.name, seconds, error)
            return None
        for source in (outages.BROKER, outages.CONFIRMATIONS):  # A producer may have connected again by itself.
            outages.answered(source, is_sure=True)
        self._ticks.sent(tick)
        return result

    def enabled_models_qs(self) -> Any:
        """Return every enabled entry: django-celery-beat leaves out crontabs of other hours, also overdue ones."""
        return self.Model.objects.enabled()

    def all_as_schedule(self) -> dict[str, beat_entry.Entry]:
        """Return the enabled entries, each going on where it was; what is known stays while the database is away."""
        before: dict[str, beat_entry.Entry] = self._schedule or {}
        try:
            ticks = self._ticks.states() if self._ticks else {}  # First: an outdated number only loses a claim.
            entries: dict[str, beat_entry.Entry] = super().all_as_schedule()
            if self._ticks:
                ticks |= self._ticks.add({entry.model.pk for entry in entries.values()} - ticks.keys())
        except Error as error:
            if self._schedule is None:
                raise
            logger.error("Schedule not read, going on with the last one: %s", error)
            self._read_schedule_again()
            return before
        known = {entry.model.pk: entry for entry in before.values()}
        for entry in entries.values():
            entry.resume(ticks.get(entry.model.pk), known.get(entry.model.pk))
        return entries

    def update_from_dict(self, mapping: Any) -> None:
        """Install entries of the configuration; they are read again with their last ticks before one is sent."""
        super().update_from_dict(mapping)
        self._read_schedule_again()

    def close(self) -> None:
        """End this beat: save the schedule, and say that it ends."""
        self._end.begin()
        self._watchdog.alive()
        self._sweep.stop()
        if self._ticks:
            self._ticks.close()
        super().close()
        self._watchdog.stop()

    def _send_again(self) -> None:
        """Send the ticks that were claimed and not sent, each with the task id of its claim."""
        for left in self._ticks.overdue() if self._ticks else ():
            producer = self.producer
            if not (self._ticks and (tick := self._ticks.claim_again(left))):
                continue
            try:
                entry = self.Entry(self.Model.objects.get(pk=tick.entry, enabled=True), app=self.app)
            except (Error, self.Model.DoesNotExist, ValueError) as error:
                logger.error("Tick %s not sent again: %s", tick.task_id, error)
                continue
            if not self._ticks.has_failed(tick):
                logger.warning(AGAIN, entry.name, tick.task_id)
            self._claimed = entry.tick = tick
            self.apply_entry(entry, producer=producer)

    def _notice_step(self) -> None:
        """Compute every entry's next run anew when the wall clock was stepped."""
        offset = self._wall_offset()
        if abs(offset - self._offset) > STEP_SECONDS:
            logger.warning("The wall clock was stepped by %.0f s; schedule computed again", offset - self._offset)
            self._offset = offset
            self._heap = None
            self._read_schedule_again()

    def _wall_offset(self) -> float:
        return self.clock.now().timestamp() - self.clock.monotonic()

    def _read_schedule_again(self) -> None:
        """Let the next look at the schedule read it, not only what changed."""
        self._last_full_sync = datetime.min  # noqa: DTZ901 - django-celery-beat's is naive

    def _when(self, entry: beat_entry.Entry, next_time_to_run: Any, *_: Any) -> float:  # noqa: ARG002 - Celery's signature
        """Return the time in the heap by the monotonic clock: on the wall clock's a step back stops the heap."""
        return self.clock.monotonic() + (self.adjust(next_time_to_run) or 0)

    def _ensure_connected(self) -> Any:
        """Connect before the first publish, however long the broker is unreachable; each try is a sign of life."""

        def failed(error: Exception, seconds: float) -> None:
            logger.error("beat: Connection error: %s. Trying again in %s seconds...", error, seconds)
            self._watchdog.alive(seconds)

        retries = self.app.conf.broker_connection_max_retries
        connection = self.connection.ensure_connection(failed, retries, callback=self._end.here)
        outages.answered(outages.BROKER, is_sure=True)
        return connection
