"""A file that each worker touches while its loop runs and its tasks make progress, for the container's health check.

A running process proves little: a worker whose loop hangs, or whose tasks all outlive their limits, is "Up" for days
(incident 17 was beat's). `inspect ping` instead costs a Django import per check, and restarts healthy
workers when the broker is slow (https://github.com/celery/celery/issues/4079), so the worker itself writes here.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import bootsteps, concurrency
from celery.signals import task_prerun
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Tasks

from ami.environment.reader import read
from ami.telemetry.variables import TelemetryVariables

logger = get_logger(__name__)

SECONDS = 5.0

#: A task this far beyond its hard time limit is in a pool that does not enforce it.
OVERDUE_SECONDS = 60.0


class Pulse(bootsteps.StartStopStep):
    """Runs after ``Tasks``: the first beat means that the worker consumes. Off without ``ANTENNA_PULSE_FILE``."""

    requires = (Tasks,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        name = read(TelemetryVariables, os.environ).antenna_pulse_file
        self.enabled = bool(name)
        self._file = Path(name)
        self._timer: Any = None
        super().__init__(consumer, **options)
        if self.enabled and isinstance(consumer.pool, concurrency.get_implementation("solo")):
            limit = float(consumer.controller.time_limit or 0)
            task_prerun.connect(lambda **_: self._write("runs a task", ahead=limit), weak=False)

    def start(self, consumer: Any) -> None:
        """Beat now, and whenever the loop of this connection runs."""
        consumer.call_soon(self._beat, consumer)
        # Without a hub the timer has a thread of its own; the beat must run in the loop.
        self._timer = consumer.timer.call_repeatedly(SECONDS, consumer.call_soon, (self._beat, consumer))

    def stop(self, _: Any) -> None:
        """Note that the broker is unreachable, and stop beating: the file's age grows."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        with suppress(OSError):
            beaten = self._file.stat().st_mtime
            self._file.write_text("without the broker\n")
            os.utime(self._file, (beaten, beaten))

    def _beat(self, consumer: Any) -> None:
        if overdue := _overdue(state.active_requests, consumer.controller.time_limit, time.time()):
            logger.error("Pulse withheld: a task has outlived its hard time limit", extra=overdue)
        else:
            self._write("consumes")

    def _write(self, text: str, ahead: float = 0.0) -> None:
        """Touch the file; with a time ``ahead`` while a solo worker's task blocks the loop."""
        try:
            self._file.write_text(f"{text}\n")
            if ahead:
                os.utime(self._file, (time.time() + ahead,) * 2)
        except OSError as error:
            logger.warning(
                "Pulse file not written: %r",
                error,
                extra={"file": str(self._file)},
            )


def _overdue(requests: Iterable[Any], limit: float | None, now: float) -> dict[str, Any]:
    """Return the fields of a task that has outlived its hard limit by far; empty when there is none."""
    for request in list(requests):
        most = (request.time_limits or (None, None))[0] or request.task.time_limit or limit
        if most and request.time_start and now - request.time_start > most + OVERDUE_SECONDS:
            return {"task": request.name, "task_id": request.id, "limit_seconds": most}
    return {}


def install(app: Any) -> None:
    """Add the step to every worker of ``app``."""
    app.steps["consumer"].add(Pulse)
