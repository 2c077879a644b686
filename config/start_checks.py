"""Stops a beat that could not do its work, with one sentence, before Celery prints a traceback.

Celery has no hook of its own for this. It imports the tasks after it has read its command line, and before it connects.
"""

from typing import Any

import click
from celery import signals
from django.conf import settings

from config import database_errors


@signals.import_modules.connect(dispatch_uid="antenna_start_checks")
def check_start(**_: Any) -> None:
    """Refuse a beat whose schedule cannot be read; `ami.celery.worker` refuses workers."""
    command = click.get_current_context(silent=True)
    if command is None or command.info_name != "beat":
        return
    if command.params.get("scheduler") == settings.CELERY_BEAT_SCHEDULER and (sentence := database_errors.unusable()):
        raise SystemExit(sentence)
