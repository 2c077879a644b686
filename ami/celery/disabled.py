"""Sets tasks aside that an operator has disabled: at their start, as a row, then acknowledged. A call that is a row
waits as one.

The worker's loop marks messages that may be concerned (`marked`); the process that would run them asks the database
(`hold`), which decides. While nothing is disabled neither costs anything.
"""

from typing import Any

from celery.exceptions import Ignore
from celery.utils.log import get_logger

from ami.celery import database_away, sensitive, staged_runs, task_counts, worker_records
from ami.celery.message_copy import PROPERTIES

logger = get_logger(__name__)

#: The argument that says which job a task belongs to.
JOB_ARGUMENT = "job_id"
LONGEST_JOB = 20
#: What `marked` adds to a request.
MARK = "antenna_set_aside"
#: For so long a call that was sent is not sent again: by then its dispatcher knows, too.
WAIT_SECONDS = 5.0

_tasks: frozenset[str] = frozenset()
_jobs: frozenset[str] = frozenset()


def apply(tasks: frozenset[str], jobs: frozenset[str]) -> None:
    """Remember what is disabled; called in the worker's loop."""
    global _tasks, _jobs
    _tasks, _jobs = tasks, jobs


def marked(request: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return what the pool gets of a request: with its whole message if the task may be disabled."""
    if MARK in values:  # Somebody else's: only this process may say so.
        values = {name: value for name, value in values.items() if name != MARK}
    if request.name not in _tasks and not _jobs:
        return values
    message = request.message
    kept = {
        "jobs": () if request.name in _tasks else tuple(_jobs),
        "body": bytes(request.body) if not isinstance(request.body, str) else request.body.encode(),
        "headers": {name: value for name, value in message.headers.items() if name != MARK},
        "properties": {name: message.properties.get(name) for name in PROPERTIES},
        "content_type": message.content_type,
        "content_encoding": message.content_encoding,
        "queue": task_counts.queue_of(request.delivery_info),
    }
    return {**values, MARK: kept}


def hold(task: Any, args: Any, kwargs: Any) -> None:
    """Set a marked task aside if it, or its job, is disabled now; called in the process that would run it.

    Raises:
        celery.exceptions.Ignore: it was set aside; its message is acknowledged.
        celery.exceptions.Reject: the database does not answer; its message returns to its queue.
    """
    request = vars(task.request)
    if MARK not in request:
        return
    # A retry would publish it: Celery takes what it does not know for a header.
    kept, records = request.pop(MARK), worker_records.connected()
    if isinstance(request.get("headers"), dict):
        request["headers"].pop(MARK, None)
    if records is None:
        return
    job = job_number(sensitive.argument(task, JOB_ARGUMENT, args, kwargs))
    if kept["jobs"] and job not in kept["jobs"]:
        return
    fields = {"task": task.name, "task_id": task.request.id}
    with database_away.requeued(task, "Disabled task not set aside"):
        if staged_runs.is_of_run(task):
            if is_held := records.is_disabled(task.name, job):
                staged_runs.wait_again(task, WAIT_SECONDS)
        else:
            is_held = records.set_aside(task.name, job, kept)
    if is_held:
        logger.info("Task set aside: it is disabled", extra=fields)
        raise Ignore


def job_number(value: Any) -> str:
    """Return the number of a job as text; empty for what is none."""
    text = str(value) if isinstance(value, (int, str)) else ""
    return text if text.isascii() and text.isdecimal() and len(text) <= LONGEST_JOB else ""
