"""The thread of a worker's parent that writes the worker's row and reads the wishes."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from django.db import Error

from ami.celery import attempts, batch_writes, outages, task_counts, task_times, tick_ends, worker_records
from ami.celery import letter_ends as letter_ends  # It listens to task_postrun.
from ami.celery.desired_state.wish_file import WishFile
from ami.celery.failures import in_child, in_parent, spool  # noqa: F401 - the first listens to signals
from ami.celery.failures.record import Failure
from ami.celery.failures.spool import Spool
from ami.celery.thread_database import short_connection
from ami.celery.worker_records import Answer, Wish, WorkerReport

logger = get_logger(__name__)

BEAT_SECONDS = 10.0
#: After the last beat the next one is due so soon where other tasks are listed, or one has reported its progress.
RUNNING_SECONDS, PROGRESS_SECONDS = 3.0, 5.0
#: How often the thread looks whether something is to be done.
TURN_SECONDS = 1.0
#: A worker that is later than this has missed a beat; after the other time it is pinged (`ami.queues.rescue.verdict`).
LATE_SECONDS, SUSPECT_SECONDS = 11.0, 14.0
#: A loop that has not turned for so long is shown as wedged; after twice the time the worker ends itself.
WEDGED_SECONDS = 30.0
EXIT_CODE = os.EX_SOFTWARE
#: A worker that ends tries so often to delete its row; one that stays is found dead, and nothing is lost.
END_TRIES = 3
#: So many failures are written at once; more follow a second later.
MOST_FAILURES = 500


class Reporter:
    """One per worker. ``report`` returns what the row says; it and ``changed`` are called in the thread.

    ``answer`` is the last one of the database; while the database does not answer it stays, and after a restart it is
    what the wish file holds.
    """

    def __init__(self, report: Callable[[], WorkerReport], wish_file: WishFile) -> None:
        self._report, self._file = report, wish_file
        self.changed: Callable[[], None] = lambda: None
        self.answer = Answer((), time.time())
        self._answered_at = time.monotonic()
        self.away_since: float | None = None
        self.first_read = threading.Event()
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._due_at = self._loop_age = 0.0
        self._still_turns = 0
        self._state: tuple[Any, ...] | None = None
        self._beaten_at = 0.0
        self._told: dict[str, str] = {}
        self._thread: threading.Thread | None = None

    @property
    def now(self) -> float:
        """Epoch seconds by the clock that wishes are written by."""
        return self.answer.now + time.monotonic() - self._answered_at

    @property
    def wishes(self) -> tuple[Wish, ...]:
        return self.answer.wishes

    @property
    def needs_sweep(self) -> bool:
        """Whether somebody may have to look for dead workers, or for who blocks the database."""
        return self.answer.sweep_is_needed or self.away_since is not None

    def start(self) -> None:
        """Start the thread, if there is a database to ask."""
        if worker_records.connected() is None or self._thread is not None:
            self.first_read.set()
            return
        self.answer = Answer(self._file.read(), time.time())
        self._thread = threading.Thread(target=self._run, name="worker-reporter", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Write and read at once: something has changed, here or in the wishes."""
        self._due_at = 0.0
        self._woken.set()

    def stop(self) -> None:
        """End the thread, and delete the worker's row: it ends in order."""
        self._stopped.set()
        self._woken.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(5)
        self._record_failures()
        if (records := worker_records.connected()) is None:
            return
        report = self._report()
        for _ in range(END_TRIES):
            try:
                with short_connection():
                    records.tasks_ended(counts := task_counts.unreported())
                    task_counts.reported(counts)
                    records.ended(report)
                return
            except Error as error:
                outages.complain("Worker's row not deleted", error)

    def info(self) -> dict[str, Any]:
        """Return what ``celery inspect stats`` shows of the database."""
        away = None if self.away_since is None else round(time.monotonic() - self.away_since, 1)
        return {"wishes": len(self.wishes), "database_away_seconds": away}

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                self._turn()
            except Exception:
                logger.exception("Worker report failed; trying again in %g s", BEAT_SECONDS)
            self.first_read.set()
            self._woken.wait(TURN_SECONDS)

    def _turn(self) -> None:
        task_times.fold()
        report = self._report()
        for step in (partial(self._beat_when_due, report), self._record_failures, partial(self._watch, report)):
            try:
                step()
            except Exception:  # One step never keeps the others from theirs.
                logger.exception("Worker report failed; trying again in %g s", BEAT_SECONDS)

    def _beat_when_due(self, report: WorkerReport) -> None:
        if self._has_changed(report):
            self._due_at = 0.0
        running = {task.id: task.progress for task in report.running}
        self._due_at = min(self._due_at, self._beaten_at + self._patience(running))
        if (now := time.monotonic()) >= self._due_at:
            self._beaten_at, self._told = now, running
            self._due_at = now + BEAT_SECONDS
            self._beat(report)

    def _has_changed(self, report: WorkerReport) -> bool:
        """Whether an operator who looks at the row would see another state than that of the last beat."""
        held = report.governor.get("state")
        state = (report.is_connected, report.is_parked, report.closed_queues, held, report.concurrency)
        before, self._state = self._state, state
        return before is not None and before != state

    def _patience(self, running: Mapping[str, str]) -> float:
        """Return the seconds between the last beat and the next, by the progress of each task that is listed."""
        if running.keys() != self._told.keys():
            return RUNNING_SECONDS
        return BEAT_SECONDS if running == self._told else PROGRESS_SECONDS

    def _beat(self, report: WorkerReport) -> None:
        records = worker_records.connected()
        if records is None:
            return
        before, ticks, counts = self.answer, tick_ends.take_unrecorded(), task_counts.unreported()
        restarted = attempts.take_ended()
        try:
            with short_connection():
                answer = records.beat(report)
                records.tasks_running(report.node, report.running, restarted)
                records.ticks_ended(ticks)
                records.tasks_ended(counts)
                task_counts.reported(counts)
        except Error as error:
            self._note_contact(answered=False)
            tick_ends.put_back(ticks)
            attempts.put_back(restarted)
            self._note_away(error)
            return
        self.answer, self._answered_at = answer, time.monotonic()
        self._note_contact(answered=True)
        if (silent := answer.oldest_beat_seconds) > LATE_SECONDS:
            # A worker has missed a beat: look again when it is to be pinged, not up to ten seconds later.
            self._due_at = min(self._due_at, time.monotonic() + max(TURN_SECONDS, SUSPECT_SECONDS - silent))
        self.away_since = None
        if answer.wishes != before.wishes:
            try:
                self._file.write(answer.wishes)
            except OSError as error:
                logger.warning("Wishes not kept for a restart: %r", error)
            self.changed()

    def _record_failures(self) -> None:
        """Write what failed to the database; while that is away it waits in the spool."""
        kept, records = spool.current(), worker_records.connected()
        if kept is None or records is None:
            return
        for failure in in_parent.take():
            kept.add(failure)
        if self.away_since is not None or not (waiting := kept.read(MOST_FAILURES)):
            return
        try:
            with short_connection():
                batch_writes.write(
                    waiting,
                    lambda some: records.failed([failure for _, failure in some if failure is not None]),
                    partial(_set_aside, kept),
                )
        except Error as error:
            self._note_away(error)
            return
        kept.remove([name for name, _ in waiting])

    @staticmethod
    def _note_contact(*, answered: bool) -> None:
        if sweeper := worker_records.sweeper():
            sweeper.database_answered(answered)

    def _note_away(self, error: Error) -> None:
        if self.away_since is None:
            self.away_since = time.monotonic()
        outages.complain("Worker not recorded; the last known wishes hold", error)

    def _watch(self, report: WorkerReport) -> None:
        """End a worker whose loop stands still: a supervisor starts it again, and its messages are redelivered.

        It counts its own turns, not the clock: a process that was stopped, or whose machine slept, resumes with none.
        """
        has_turned = report.loop_age_seconds < self._loop_age or not report.is_connected
        self._loop_age = report.loop_age_seconds
        self._still_turns = 0 if has_turned else self._still_turns + 1
        age = self._still_turns * TURN_SECONDS - report.loop_allowance_seconds
        if age < 2 * WEDGED_SECONDS or self._stopped.is_set():
            return
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        where = "".join(traceback.format_stack(frame)[-3:]) if frame else "unknown"
        logger.critical("The worker's loop has stood still for %.0f s; ending. It stands at:\n%s", age, where)
        for pid, _ in report.children:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        os._exit(EXIT_CODE)


def _set_aside(kept: Spool, record: tuple[str, Failure | None], error: Exception) -> None:
    """Keep a record of a failure out of the way of the others: the database refuses it as data."""
    name, failure = record
    kept.set_aside(name)
    fields = {"task": failure.task, "task_id": failure.task_id} if failure else {}
    logger.error("Failure not recorded, the database refuses it: %r", error, extra=fields | {"file": name})
