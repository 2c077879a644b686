"""Notes a try whose process ended: its child could not. The worker's loop only notes it; a thread writes it down."""

import time
from collections import deque
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError

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
    taken = []
    while _noted:
        taken.append(_noted.popleft())
    return taken


def kind_of(error: object) -> str:
    """Return how the error ended the try's process; empty for one that the task raised."""
    return next((kind for each, kind in _KINDS.items() if isinstance(error, each)), "")


def note(request: Any, error: BaseException) -> None:
    """Note a try that ended its process; of another error, which the child has recorded, nothing."""
    if not (kind := kind_of(error)):
        return
    now, began = time.time(), request.time_start
    used = error.args[1] if isinstance(error, MemoryLimitExceeded) and len(error.args) > 1 else 0
    _noted.append(
        Failure(
            task_id=str(request.id),
            retries=int(request.request_dict.get("retries") or 0),
            delivery=record.delivery_of(request.request_dict, request.delivery_info),
            task=str(request.name),
            kind=kind,
            exception=record.name_of(error),
            message=record.text_of(error),
            place="",
            traceback="",
            node=str(request.hostname or ""),
            host=record.host(),
            pid=int(request.worker_pid or 0),
            failed_at=now,
            seconds=round(now - began, 3) if began else 0.0,
            peak_kib=int(used or 0),
        )
    )
