"""Records a failure in the process that ran the task: one for each try, also for one that is tried again."""

import os
import resource
import time
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery.signals import task_failure, task_retry

from ami.celery import sensitive
from ami.celery.failures import in_parent, record, spool
from ami.celery.failures.record import Failure
from ami.governor.errors import CeilingReached


def _of(task: Any, request: Any, error: BaseException, kind: str, formatted: str) -> Failure:
    secrets = sensitive.values(task, getattr(request, "args", ()), getattr(request, "kwargs", {}))
    began, now = getattr(request, "antenna_began_at", 0.0), time.time()
    return Failure(
        task_id=str(request.id),
        retries=int(request.retries or 0),
        delivery=record.delivery_of(vars(request), request.delivery_info),
        task=task.name,
        kind=kind,
        exception=record.name_of(error),
        message=sensitive.without(record.text_of(error), secrets),
        place=record.place_of(error),
        traceback=sensitive.without(record.shortened(formatted) or record.traceback_of(error), secrets),
        node=str(request.hostname or ""),
        host=record.host(),
        pid=os.getpid(),
        failed_at=now,
        seconds=round(now - began, 3) if began else 0.0,
        peak_kib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def keep(task: Any, request: Any, error: Any, kind: str, formatted: str = "") -> None:
    """Record a try that failed with ``error``; outside a worker it does nothing. ``formatted`` is its traceback, where
    that is at hand: formatting it takes longer than the rest.
    """
    kept = spool.current()
    # Celery sends these signals in the parent, too, for children that have ended; `in_parent` notes those.
    if isinstance(error, ExceptionWithTraceback):
        error = error.exc
    if in_parent.kind_of(error):
        return
    if kept is None or request is None or request.id is None or getattr(request, "is_eager", False):
        return
    if isinstance(error, BaseException):
        kept.add(_of(task, request, error, kind, formatted))


@task_failure.connect(dispatch_uid="failures.failure")
def _failed(sender: Any = None, exception: Any = None, einfo: Any = None, **_: Any) -> None:
    text = getattr(einfo, "traceback", None)
    keep(sender, sender.request, exception, "error", text if isinstance(text, str) else "")


@task_retry.connect(dispatch_uid="failures.retry")
def _retried(sender: Any = None, request: Any = None, reason: Any = None, **_: Any) -> None:
    """``reason`` is Celery's Retry; its cause failed. What the memory ceiling ended is the parent's to tell."""
    if not isinstance(reason, CeilingReached):
        keep(sender, request, getattr(reason, "exc", None), "retry")
