"""Counts each run of a task without a routing rule."""

from typing import Any

from celery.utils.log import get_logger
from django.db import DatabaseError
from django.db.models import F
from django.utils import timezone

from ami.telemetry.models import UnroutedTask

logger = get_logger(__name__)


def count(sender: Any = None, **_: Any) -> None:
    """Add one to the task's counter before it runs; a database error never stops the task."""
    if sender.app.topology.place(sender.name).routed or sender.name.startswith("celery."):
        return
    logger.warning(
        "Unrouted task runs on the fallback queue; add a rule to ami/topology/table.py", extra={"task": sender.name}
    )
    try:
        _add_one(sender.name)
    except DatabaseError as error:
        logger.warning("Unrouted task not counted: %r", error, extra={"task": sender.name})


def _add_one(name: str) -> None:
    now = timezone.now()
    if not UnroutedTask.objects.filter(name=name).update(runs=F("runs") + 1, last_run_at=now):
        _, created = UnroutedTask.objects.get_or_create(name=name, defaults={"runs": 1, "last_run_at": now})
        if not created:
            UnroutedTask.objects.filter(name=name).update(runs=F("runs") + 1, last_run_at=now)
