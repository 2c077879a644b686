"""Begins and ends the run that a message names, around its task (`ami.celery.staged_calls`)."""

import time
from typing import Any

from billiard import current_process
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_logger
from django.db import Error

from ami.celery import database_away, publish_bounds, staged_calls
from ami.celery.staged_calls import (
    DELIVERY,
    NEXT,
    RUN_HEADER,
    STARTS_HEADER,
    Admission,
    Begun,
    End,
    Next,
    Note,
    admission,
    is_staged,
)

logger = get_logger(__name__)

#: The attribute of a request with the run that has begun.
BEGUN = "antenna_begun"

#: The same as for a message that is delivered again: a call that was sent more often is buried.
MOST_STARTS = 10


def run(task: Any, args: Any, kwargs: Any) -> Any:
    """Run a task that a worker was sent: for the run that its message names; one with a policy for no other.

    Raises:
        celery.exceptions.Ignore: the message is an old one, a second one, or has become a row.
        celery.exceptions.Reject: the database is away, or the task was started too often.
    """
    if task.request.is_eager or not (is_staged(task) or is_of_run(task)):
        return task.run(*args, **kwargs)
    begun = _begin(task, args, kwargs)
    request = task.request
    setattr(request, BEGUN, begun)
    fields = {"task": task.name, "task_id": request.id}
    logger.info("👷 %s pulled job from queue", _process_name(), extra=fields)
    if begun.args is not None:
        args, kwargs = request.args, request.kwargs = begun.args, begun.kwargs
    try:
        result = task.run(*args, **kwargs)
    except (Ignore, Retry):
        _end(task, begun)
        raise
    except Reject:
        raise
    except Exception as error:
        _split(task, begun, error)
        raise
    if not _end(task, begun):
        raise Ignore
    logger.info("✅ %s finished job", _process_name(), extra=fields)
    return result


def _begin(task: Any, args: Any, kwargs: Any) -> Begun:
    request = task.request
    fields = {"task": task.name, "task_id": request.id}
    run, delivery = getattr(request, RUN_HEADER, None), str(getattr(request, DELIVERY, ""))
    with database_away.requeued(task, "Run not begun"):
        if not is_of_run(task):
            _rows().adopt(task, args, kwargs)
            logger.info("Message without a row adopted as a call", extra=fields)
            raise Ignore
        begun = _rows().begin(task, str(run), delivery, str(request.id))
    if begun is None:
        logger.info("Message ignored: its run has begun or ended", extra=fields)
        raise Ignore
    if (starts := int(getattr(request, STARTS_HEADER, 0) or 0)) > MOST_STARTS:
        logger.error("Task buried: its process died or was stopped at every start", extra={**fields, "starts": starts})
        raise Reject(f"started {starts - 1} times and never finished", requeue=False)
    return begun


def go_on(task: Any, following: Next) -> bool:
    """Let the running task's run go on with ``following`` after it has ended here; False where it has no run.

    Raises:
        publish_bounds.MessageRefused: workers would bury it.
    """
    if getattr(task.request, BEGUN, None) is None:
        return False
    publish_bounds.check_body(task.name, [following.args, following.kwargs, {}])
    setattr(task.request, NEXT, following)
    return True


def is_of_run(task: Any) -> bool:
    """Whether the running task's message was sent for a run."""
    return staged_calls.is_of_run(task.request)


def wait_again(task: Any, seconds: float) -> None:
    """Let the calls of a message that `is_of_run` wait so long, before they are sent again; it has not begun.

    Raises:
        django.db.Error: they do not.
    """
    request = task.request
    following = Next(retries=int(request.retries or 0), due=time.time() + seconds)
    run, delivery = getattr(request, RUN_HEADER), str(getattr(request, DELIVERY, ""))
    _rows().wait_again(Note(run, delivery, End.RETURNED, following, task=task.name, task_id=str(request.id)))


def was_started_before(request: Any) -> bool:
    """Whether the call or message of a running task was given to a process before, which has not ended it."""
    starts = int(getattr(request, STARTS_HEADER, 0) or 0)
    return starts > 1 or bool((request.delivery_info or {}).get("redelivered"))


def _split(task: Any, begun: Begun, error: Exception) -> None:
    """Let a run of several calls that failed go on in parts; it is the last part that is a letter.

    Raises:
        celery.exceptions.Ignore: it does.
    """
    if begun.call is None:
        return
    try:
        is_split = _rows().split(task, begun)
    except Error:
        return  # The letter has one of its calls.
    if is_split:
        setattr(task.request, BEGUN, None)
        fields = {"task": task.name, "task_id": task.request.id}
        logger.warning("Run failed, its calls are tried in parts: %r", error, extra=fields)
        raise Ignore from error


def _end(task: Any, begun: Begun) -> bool:
    """End the run; False if it was taken away. While the database is away the parent goes on trying."""
    request = task.request
    fields = {"task": task.name, "task_id": request.id}
    try:
        if _rows().end(task, begun, getattr(request, NEXT, None)):
            return True
    except Error as error:
        logger.warning("End of a run not written; the worker's parent goes on: %s", _line(error), extra=fields)
        return True
    finally:
        setattr(request, BEGUN, None)
    logger.warning("Run ended after it was taken from this process", extra=fields)
    return False


def is_lost() -> bool | None:
    """Whether the running task's run was taken from it; None where it has none.

    Raises:
        django.db.Error: the database does not say.
    """
    from celery import current_task

    begun = getattr(current_task.request, BEGUN, None) if current_task else None
    return None if begun is None or (rows := admission()) is None else not rows.holds(begun)


def _rows() -> Admission:
    found = admission()
    assert found is not None
    return found


def _process_name() -> str:
    """Return ``Worker-3`` of the pool's ``ForkPoolWorker-3``."""
    name = str(current_process().name)
    return f"Worker-{name.rpartition('-')[2]}" if "-" in name else name


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
