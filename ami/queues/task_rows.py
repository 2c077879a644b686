"""The rows of tasks that run for a while, or were delivered again: one statement for many, on both databases."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from django.db import connection
from django.db.models.functions import Now

from ami.celery import batch_writes
from ami.celery.database_times import now_beside_parameters
from ami.celery.worker_records import RunningTask
from ami.queues.models import TaskRun, Worker
from ami.queues.rescue.verdict import Verdict

_COLUMNS = ("task_id", "task", "node", "pid", "started_at", "is_redelivered", "kib", "progress", "beaten_at")
_NAMES = (*_COLUMNS, "stall_seconds")
_FIELDS = {field.name: field for field in TaskRun._meta.concrete_fields}
#: Rows of ended tasks are kept for so long; they are looked for this often.
#: A living worker reports what runs every ten seconds.
SILENT = timedelta(seconds=15)

logger = get_logger(__name__)


def record(node: str, tasks: Sequence[RunningTask], before: frozenset[str]) -> frozenset[str]:
    """Write the rows of what runs, and end those of ``before`` that do not run any more; return the ids that run."""
    ids = frozenset(task.id for task in tasks)
    batch_writes.write(tasks, partial(_upsert, node), _refused)
    if gone := before - ids:
        TaskRun.objects.filter(task_id__in=gone, node=node, ended_at=None).update(ended_at=Now(), outcome="ended")
    return ids


def end_silent() -> None:
    """End what no living worker has reported for a while: its process was killed with its worker. One statement."""
    living = Worker.objects.exclude(verdict=Verdict.DEAD).values("node")
    silent = TaskRun.objects.filter(ended_at=None, seen_at__lt=Now() - SILENT).exclude(node__in=living)
    silent.update(ended_at=Now(), outcome="killed")


def end_of(node: str, outcome: str, silent: timedelta = timedelta(0)) -> None:
    """End the tasks of a worker's start that no worker has reported for so long; one statement."""
    left = TaskRun.objects.filter(node=node, ended_at=None, seen_at__lte=Now() - silent)
    left.update(ended_at=Now(), outcome=outcome)


def attempt(task_id: str, task: str, node: str) -> int:
    """Count one more start of a task and return how many there were; one statement."""
    values: dict[str, Any] = {"task_id": task_id, "task": task, "node": node, "is_redelivered": True, "attempts": 2}
    names, now = ", ".join((*values, *_REQUIRED)), now_beside_parameters()
    table = TaskRun._meta.db_table
    statement = (
        f"INSERT INTO {table} ({names}, started_at, seen_at) "  # noqa: S608 - names of columns alone
        f"VALUES ({', '.join(['%s'] * (len(values) + len(_REQUIRED)))}, {now}, {now}) ON CONFLICT (task_id) DO UPDATE "
        f"SET attempts = {table}.attempts + 1, node = excluded.node, is_redelivered = excluded.is_redelivered, "
        "started_at = excluded.started_at, seen_at = excluded.seen_at, ended_at = NULL RETURNING attempts"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [*values.values(), *_REQUIRED.values()])
        return int(cursor.fetchone()[0])


#: Columns without a default of the database's.
_REQUIRED: dict[str, Any] = {"pid": 0, "kib": 0, "progress": "", "stall_seconds": 0, "outcome": ""}


def _upsert(node: str, tasks: Sequence[RunningTask]) -> None:
    table, now = TaskRun._meta.db_table, now_beside_parameters()
    updates = ", ".join(f"{name} = excluded.{name}" for name in (*_NAMES[2:], "seen_at"))
    row = f"({', '.join(['%s'] * len(_NAMES))}, 1, '', {now})"
    statement = (
        f"INSERT INTO {table} ({', '.join(_NAMES)}, attempts, outcome, seen_at) "  # noqa: S608 - names of columns alone
        f"VALUES {', '.join([row] * len(tasks))} ON CONFLICT (task_id) DO UPDATE SET {updates}, ended_at = NULL"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [value for task in tasks for value in _values(node, task)])


def _refused(task: RunningTask, error: Exception) -> None:
    fields = {"task": task.name, "task_id": task.id}
    logger.error("Running task not listed, the database refuses its row: %r", error, extra=fields)


def _values(node: str, task: RunningTask) -> list[Any]:
    given = vars(task) | {
        "task_id": task.id,
        "task": task.name,
        "node": node,
        "started_at": datetime.fromtimestamp(task.started_at, UTC),
        "beaten_at": datetime.fromtimestamp(task.beaten_at, UTC) if task.beaten_at else None,
        "is_redelivered": task.is_redelivered,
    }
    return [_FIELDS[name].get_db_prep_save(given[name], connection) for name in _NAMES]
