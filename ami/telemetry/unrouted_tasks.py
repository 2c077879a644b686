"""Counts each run of a task without a routing rule, in this process; written at most every few seconds, and at exit.

A row per task that every child updated at each run was what they waited for. A process that is killed loses the runs
since its last write, which are those of ``WRITE_SECONDS`` at most.
"""

import threading
import time
from datetime import datetime
from typing import Any

from celery.utils.log import get_logger
from django.db import Error
from django.db.models import DateTimeField, F, Value
from django.db.models.functions import Greatest
from django.utils import timezone

from ami.celery.database_away import is_away
from ami.telemetry.models import UnroutedTask

logger = get_logger(__name__)

WRITE_SECONDS = 5.0

#: A process warns of a task at its first run, and then at most so often.
WARN_SECONDS = 60.0


class Counts:
    """Runs of this process that are not written yet. Threads of a pool share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, int] = {}
        self._last: dict[str, datetime] = {}
        self._written_at = float("-inf")
        self._warned_at: dict[str, float] = {}

    def add(self, name: str, runs: int, last_run_at: datetime) -> None:
        """Count runs of a task."""
        with self._lock:
            self._runs[name] = self._runs.get(name, 0) + runs
            self._last[name] = max(last_run_at, self._last.get(name, last_run_at))

    def warns(self, name: str) -> bool:
        """Whether the log is to warn of a task now."""
        now = time.monotonic()
        warns = now - self._warned_at.get(name, float("-inf")) >= WARN_SECONDS
        if warns:
            self._warned_at[name] = now
        return warns

    def is_due(self) -> bool:
        """Whether there are runs to write, and the last write is ``WRITE_SECONDS`` ago."""
        return bool(self._runs) and time.monotonic() - self._written_at >= WRITE_SECONDS

    def write(self) -> None:
        """Write and forget all runs; those that the database does not take are kept for the next time."""
        with self._lock:
            runs, self._runs = self._runs, {}
            last, self._last = self._last, {}
            self._written_at = time.monotonic()
        for name, count in runs.items():
            try:
                _add(name, count, last[name])
            except Error as error:
                if is_away(error):
                    self.add(name, count, last[name])
                logger.warning("Unrouted task not counted: %r", error, extra={"task": name})


counts = Counts()


def count(sender: Any = None, **_: Any) -> None:
    """Count a task that is about to run."""
    if sender.app.topology.place(sender.name).routed or sender.name.startswith("celery."):
        return
    if counts.warns(sender.name):
        logger.warning(
            "Unrouted task runs on the fallback queue; add a rule to ami/topology/table.py", extra={"task": sender.name}
        )
    counts.add(sender.name, 1, timezone.now())


def after_task(**_: Any) -> None:
    """Write the counts where that is due; a database error never fails the task."""
    if counts.is_due():
        counts.write()


def at_exit(**_: Any) -> None:
    """Write what is left: the process of a pool, or the worker of a pool without processes, ends."""
    counts.write()


def _add(name: str, runs: int, last_run_at: datetime) -> None:
    """Add runs to the task's row, which is made with its first run."""
    latest = Greatest(F("last_run_at"), Value(last_run_at, output_field=DateTimeField()))
    rows = UnroutedTask.objects.filter(name=name)
    if not rows.update(runs=F("runs") + runs, last_run_at=latest):
        _, created = UnroutedTask.objects.get_or_create(name=name, defaults={"runs": runs, "last_run_at": last_run_at})
        if not created:
            rows.update(runs=F("runs") + runs, last_run_at=latest)
