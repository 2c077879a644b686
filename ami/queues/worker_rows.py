"""The workers' rows and the wishes in the database: two statements a beat, on PostgreSQL and SQLite alike."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from celery.utils.log import get_logger
from django.db import connection

from ami.celery import batch_writes
from ami.celery.database_away import is_away
from ami.celery.database_times import moment, now_beside_parameters
from ami.celery.failures.record import Failure
from ami.celery.worker_records import Answer, RunningTask, Wish, WorkerReport
from ami.queues import ended_workers, task_counts, task_rows
from ami.queues import failures as task_failures
from ami.queues.letters import causes, rows, set_aside
from ami.queues.models import DesiredState, Lease, Worker
from ami.queues.rescue import gone, processes
from ami.queues.rescue.sweep import NAME as SWEEP
from ami.queues.rescue.verdict import FRAME_SECONDS, LOOP_SECONDS, STALE_SECONDS, SUSPECT_SECONDS, Verdict
from ami.queues.signals import tasks_changed, worker_changed
from ami.queues.ticks import DatabaseTickClaims

logger = get_logger(__name__)

#: Columns that a beat leaves as they are: who is dead is decided elsewhere.
_NOT_WRITTEN = ("seen_at", "verdict", "flagged_at")
_FIELDS = tuple(field for field in Worker._meta.concrete_fields if field.name not in _NOT_WRITTEN)
_AGO = {
    "postgresql": "statement_timestamp() - interval '{seconds} seconds'",
    "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-{seconds} seconds')",
}


class DatabaseWorkerRecords:
    """Implements `ami.celery.worker_records.WorkerRecords`."""

    def __init__(self) -> None:
        self._incarnation = ""
        self._before: tuple[str, float] | None = None
        self._listed: frozenset[str] = frozenset()
        self._shown: tuple[Any, ...] = ()
        self._tasks: tuple[tuple[str, str], ...] = ()

    def beat(self, report: WorkerReport) -> Answer:
        if self._incarnation != report.connection_name or self._before:
            self._replace(report)
        try:
            seen_at, is_needed, oldest = _write(report)
        except Exception as error:  # Also what a driver raises for a value that it cannot send.
            if is_away(error):
                raise
            # Without a row it would be taken for dead.
            logger.error("Worker's row written without its tasks, the database refuses them: %r", error)
            seen_at, is_needed, oldest = _write(replace(report, running=(), totals={}, governor={}))
        if self._shown != (shown := _shown(report)):
            self._shown = shown
            worker_changed.send_robust(type(self))
        if self._tasks != (tasks := tuple((task.id, task.progress) for task in report.running)):
            self._tasks = tasks
            tasks_changed.send_robust(type(self))
        now = moment(seen_at)
        silent = (now - moment(oldest)).total_seconds() if oldest else 0.0
        return Answer(wishes(), now.timestamp(), bool(is_needed), silent)

    def _replace(self, report: WorkerReport) -> None:
        """Release what an earlier start of this worker held, which did not end in order; one statement per start.

        Where it cannot be seen that its process is gone, that waits until the row has been this start's alone for as
        long as a beat may be late: two workers of one name take the row from each other.
        """
        row = Worker.objects.filter(node=report.node).first()
        before = row.connection_name if row else ""
        if self._incarnation != report.connection_name:
            self._incarnation, self._before = report.connection_name, None
            if row and before and before != report.connection_name:
                if row.totals:
                    ended_workers.keep(before, row.totals)
                self._before = before, time.monotonic()
                if processes.is_running(row) is False:
                    processes.end(row)  # Its children may still run.
                    self._release()
                    task_rows.end_of(report.node, "killed")
        elif before != report.connection_name:
            logger.error("Two workers have this name; give one of them another", extra={"worker": report.node})
            self._before = None
        elif self._before and time.monotonic() - self._before[1] >= STALE_SECONDS:
            self._release()
            task_rows.end_of(report.node, "killed", task_rows.SILENT)

    def _release(self) -> None:
        if self._before:
            gone.worker_gone(self._before[0])
        self._before = None

    def tasks_running(self, node: str, tasks: Sequence[RunningTask], ended: Iterable[str] = ()) -> None:
        before = self._listed.union(ended)
        if tasks or before:
            self._listed = task_rows.record(node, tasks, before)

    def attempt(self, task_id: str, task: str, node: str) -> int:
        return task_rows.attempt(task_id, task, node)

    def ticks_ended(self, task_ids: Sequence[str]) -> None:
        batch_writes.write(task_ids, DatabaseTickClaims().ended, _refused("End of a tick"))

    def tasks_ended(self, counts: Mapping[str, tuple[int, int]]) -> None:
        batch_writes.write(list(counts.items()), lambda some: task_counts.add(dict(some)), _refused("Count of a queue"))

    def failed(self, failures: Sequence[Failure]) -> None:
        task_failures.record(failures)
        causes.bind({each.task_id for each in failures})

    def letter_done(self, letter: int, task_id: str) -> None:
        rows.done(letter, task_id)

    def is_disabled(self, task: str, job: str) -> bool:
        return set_aside.is_disabled(task, job)

    def set_aside(self, task: str, job: str, message: Mapping[str, Any]) -> bool:
        return set_aside.keep(task, job, message)

    def ended(self, report: WorkerReport) -> None:
        if report.totals:
            ended_workers.keep(report.connection_name, report.totals)
        if Worker.objects.filter(node=report.node, connection_name=report.connection_name).delete()[0]:
            task_rows.end_of(report.node, "ended")
        worker_changed.send_robust(type(self))


def _write(report: WorkerReport) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(_statement(), _values(report))
        return cursor.fetchone() or (None, None, None)


def _refused(what: str) -> Callable[[Any, Exception], None]:
    def log(row: Any, error: Exception) -> None:
        logger.error("%s not recorded, the database refuses it: %r", what, error, extra={"row": repr(row)})

    return log


def _shown(report: WorkerReport) -> tuple[Any, ...]:
    """Return what operators are shown of a worker at once when it changes; of what it runs they wait for a snapshot."""
    held, size = report.governor.get("state"), (report.concurrency, len(report.children))
    return report.is_connected, report.is_parked, report.closed_queues, held, size


def wishes() -> tuple[Wish, ...]:
    """Return every wish that is on record, in the order in which they were first made."""
    names = ("kind", "name", "aspect", "value", "by", "why", "since", "until")
    return tuple(Wish(**_seconds(row)) for row in DesiredState.objects.order_by("pk").values(*names))


def _seconds(row: dict[str, Any]) -> dict[str, Any]:
    until = row["until"]
    return row | {"since": row["since"].timestamp(), "until": until.timestamp() if until else None}


def _statement() -> str:
    """Return the one statement that writes a row, new or not, and returns the database's time."""
    names = [str(field.column) for field in _FIELDS]
    updates = ", ".join(f"{name} = excluded.{name}" for name in [*names[1:], "seen_at"])
    return (
        f"INSERT INTO {Worker._meta.db_table} ({', '.join(names)}, seen_at) "  # noqa: S608 - names of columns alone
        f"VALUES ({', '.join(['%s'] * len(names))}, {now_beside_parameters()}) "
        f"ON CONFLICT (node) DO UPDATE SET {updates} RETURNING seen_at, {_needs_sweep()}, "
        f"(SELECT min(other.seen_at) FROM {Worker._meta.db_table} AS other WHERE other.verdict <> '{Verdict.DEAD}')"
    )


def _needs_sweep() -> str:
    """Return the condition that some worker is not well, or was not, and no other process holds the sweep's lease.

    As in `ami.queues.rescue.verdict`; one that has missed a beat is to be pinged. The table is small.
    """
    now, ago = now_beside_parameters(), _AGO[connection.vendor]
    late = f"other.seen_at < {ago.format(seconds=SUSPECT_SECONDS)}"
    return (
        f"(EXISTS (SELECT 1 FROM {Worker._meta.db_table} AS other "  # noqa: S608 - names and numbers of this module alone
        f"WHERE ({late} AND other.verdict <> '{Verdict.DEAD}') OR (NOT {late} AND (other.verdict <> '' "
        f"OR other.loop_age_seconds - other.loop_allowance_seconds >= {LOOP_SECONDS} "
        f"OR other.frame_age_seconds >= {FRAME_SECONDS}))) "
        f"AND NOT EXISTS (SELECT 1 FROM {Lease._meta.db_table} AS held WHERE held.name = '{SWEEP}' "
        f"AND held.holder <> {Worker._meta.db_table}.node AND held.until > {now}))"
    )


def _values(report: WorkerReport) -> list[Any]:
    given = vars(report) | {
        "queues": list(report.queues),
        "children": [list(child) for child in report.children],
        "consumers": list(report.consumers),
        "closed_queues": list(report.closed_queues),
        "running": [vars(task) for task in report.running],
        "started_at": datetime.fromtimestamp(report.started_at, UTC),
    }
    return [field.get_db_prep_save(given[field.name], connection) for field in _FIELDS]


#: This process's, which `config` connects.
RECORDS = DatabaseWorkerRecords()
