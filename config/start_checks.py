"""Stops beat and workers that could not do their work, with one sentence, before Celery prints a traceback.

Celery has no hook of its own for this. It imports the tasks after it has read its command line, and before it connects.
"""

from collections.abc import Iterable
from typing import Any

import click
from celery import signals
from django.conf import settings

from ami.topology.errors import TopologyError
from config import database_errors
from config.settings.environment import refuse


@signals.import_modules.connect(dispatch_uid="antenna_start_checks")
def check_start(sender: Any, **_: Any) -> None:
    """Refuse a beat whose schedule cannot be read, and a worker of a queue that Celery does not know."""
    command = click.get_current_context(silent=True)
    if command is None:
        return
    if command.info_name == "beat" and command.params.get("scheduler") == settings.CELERY_BEAT_SCHEDULER:
        if sentence := database_errors.unusable():
            raise SystemExit(sentence)
    elif command.info_name == "worker":
        refuse_unknown(sender, command.params.get("queues") or ())


def refuse_unknown(app: Any, queues: Iterable[str]) -> None:
    for queue in queues:
        if queue not in app.amqp.queues:
            try:
                settings.ANTENNA_TOPOLOGY.workload(queue)
            except TopologyError as error:
                refuse(str(error))
