"""Counts the starts of a task that was delivered again after its process died, and buries it at the limit.

A start writes a row that says that the task runs; its worker's next report says that it has ended.
"""

from collections import deque
from typing import Any

from celery.exceptions import Reject
from celery.utils.log import get_logger
from django.db import Error

from ami.celery import worker_records
from ami.celery.failures import in_child

logger = get_logger(__name__)

#: More than restarts of a fleet or a broker make of one task; RabbitMQ's own limit also counts deliveries without a
#: start.
MOST_ATTEMPTS = 10

#: The ids of counted tasks that have ended; the worker's thread records them with its next report.
_ended: deque[str] = deque(maxlen=10_000)


def note_end(request: Any) -> None:
    """Note the end of a message, in the worker's loop, which asks no database."""
    if (request.delivery_info or {}).get("redelivered"):
        _ended.append(str(request.id))


def take_ended() -> list[str]:
    """Return and forget the ids of tasks whose end is not recorded yet."""
    return list(iter(lambda: _ended.popleft() if _ended else None, None))


def put_back(task_ids: list[str]) -> None:
    """Keep ids that could not be recorded."""
    _ended.extend(task_ids)


def count(task: Any) -> None:
    """Count the start of a message that is flagged as redelivered: one statement; others pay nothing.

    Raises:
        celery.exceptions.Reject: the task was started too often; its message is buried.
    """
    request, records = task.request, worker_records.connected()
    if records is None or not (request.delivery_info or {}).get("redelivered"):
        return
    try:
        attempts = records.attempt(str(request.id), task.name, str(request.hostname))
    except Error as error:
        logger.warning("Attempt not counted: %s", error, extra={"task_id": request.id})
        return
    if attempts > MOST_ATTEMPTS:
        fields = {"task": task.name, "task_id": request.id, "attempts": attempts}
        logger.error("Task buried: its process died or was stopped at every start", extra=fields)
        refused = Reject(f"started {attempts} times and never finished", requeue=False)
        in_child.keep(task, request, refused, "refused")
        raise refused
