"""Notes a try whose process ended: its child could not. The worker's loop only notes it; a thread writes it down."""

import time
from collections import deque
from dataclasses import replace
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import TaskRevokedError
from celery.signals import task_revoked

from ami.celery.failures import record
from ami.celery.failures.record import Failure
from ami.governor.errors import MemoryLimitExceeded, TaskStalled

_KINDS: dict[type[BaseException], str] = {
    TimeLimitExceeded: "time limit",
    WorkerLostError: "process lost",
    MemoryLimitExceeded: "memory",
    TaskStalled: "stalled",
}

_noted: deque[Failure] = deque(maxlen=10_000)


def take() -> list[Failure]:
    """Return and forget what was noted; called in the worker's thread."""
    return list(iter(lambda: _noted.popleft() if _noted else None, None))


def kind_of(error: object) -> str:
    """Return how the error ended the try's process; empty for one that the task raised."""
    return next((kind for each, kind in _KINDS.items() if isinstance(error, each)), "")


def note(request: Any, error: BaseException) -> None:
    """Note a try that ended its process; of another error, which the child has recorded, nothing."""
    if not (kind := kind_of(error)):
        return
    now, began = time.time(), request.time_start
    used = error.args[1] if isinstance(error, MemoryLimitExceeded) and len(error.args) > 1 else 0
    made = _failure(request.request_dict, request.name, error, kind, request.delivery_info, request.hostname)
    seconds = round(now - began, 3) if began else 0.0
    _noted.append(replace(made, pid=int(request.worker_pid or 0), seconds=seconds, peak_kib=int(used or 0)))


@task_revoked.connect(dispatch_uid="failures.revoked")
def _dropped(request: Any = None, terminated: bool = False, expired: bool = False, **_: Any) -> None:
    """Note a task that came too late or was cancelled; ``request`` is Celery's Context of it."""
    if request is None:
        return
    what = "it expired" if expired else "it was cancelled"
    error = TaskRevokedError(f"{what} {'while it ran' if terminated else 'before a worker began it'}")
    kind = "expired" if expired else "cancelled"
    _noted.append(_failure(vars(request), request.task, error, kind, request.delivery_info, request.hostname))


def _failure(headers: Any, task: Any, error: BaseException, kind: str, delivery_info: Any, node: Any) -> Failure:
    return Failure(
        task_id=str(headers.get("id")),
        retries=int(headers.get("retries") or 0),
        delivery=record.delivery_of(headers, delivery_info),
        task=str(task),
        kind=kind,
        exception=record.name_of(error),
        message=record.text_of(error),
        place="",
        traceback="",
        node=str(node or ""),
        host=record.host(),
        pid=0,
        failed_at=time.time(),
    )
