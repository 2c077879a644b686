"""Records that the task of a tick has ended, so that beat sends the next one: in the child or the parent.

What ends with its process and is sent again goes on. A worker that dies says nothing; beat takes a tick for ended when
it must have expired.
"""

from collections import deque
from typing import Any

from celery import states
from celery.signals import task_postrun, task_revoked
from celery.utils.log import get_logger
from django.db import Error

from ami.celery import origin, tick_claims

logger = get_logger(__name__)

GOES_ON = frozenset({states.RETRY, states.IGNORED, states.REJECTED})

#: The ids of tasks that ended without running; the worker's thread records them with its next beat.
_unrecorded: deque[str] = deque(maxlen=10_000)


def take_unrecorded() -> list[str]:
    """Return and forget the ids that are not recorded yet."""
    return list(iter(lambda: _unrecorded.popleft() if _unrecorded else None, None))


def put_back(task_ids: list[str]) -> None:
    """Keep ids that could not be recorded."""
    _unrecorded.extend(task_ids)


@task_postrun.connect(dispatch_uid="tick_ends.postrun")
def _ran(task: Any = None, task_id: str = "", state: str = "", **_: Any) -> None:
    """Record the end of a task that beat sent, unless it goes on: in a retry, another message, or another run."""
    claims = tick_claims.connected()
    if claims is None or task is None or state in GOES_ON or origin.of_request(task.request) != origin.BEAT:
        return
    try:
        claims.ended([task_id])
    except Error as error:
        logger.warning("End of a tick not recorded: %s", error, extra={"task_id": task_id})


@task_revoked.connect(dispatch_uid="tick_ends.revoked")
def _dropped(request: Any = None, **_: Any) -> None:
    """Note the end of a task that was revoked or came too late."""
    if request is not None:
        note(request)


def note(request: Any) -> None:
    """Note the end of a task that its child did not see; called in the worker's loop, which asks no database."""
    if origin.of_request(request) == origin.BEAT:
        _unrecorded.append(str(request.id))
