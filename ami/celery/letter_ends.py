"""Records that the task of a dead letter, published again, has succeeded; other messages pay nothing."""

from typing import Any

from celery import states
from celery.signals import task_postrun
from celery.utils.log import get_logger
from django.db import Error

from ami.celery import worker_records
from ami.celery.app import LETTER_HEADER

logger = get_logger(__name__)


@task_postrun.connect(dispatch_uid="letter_ends.postrun")
def _ran(task: Any = None, task_id: str = "", state: str = "", **_: Any) -> None:
    letter = getattr(task.request, LETTER_HEADER, None) if task is not None else None
    records = worker_records.connected()
    if state != states.SUCCESS or not isinstance(letter, int) or records is None:
        return
    try:
        records.letter_done(letter, task_id)
    except Error as error:
        logger.warning("End of a replayed letter not recorded: %s", error, extra={"task_id": task_id})
