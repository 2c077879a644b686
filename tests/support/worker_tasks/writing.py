"""Tasks that write a row: tried again, like the product's, while the database is away."""

from typing import Any

from celery import shared_task
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from ami.telemetry.models import UnroutedTask


@shared_task(bind=True, autoretry_for=(OperationalError, InterfaceError), max_retries=20, default_retry_delay=1)
def write_row(self: Any, name: str) -> None:
    """Write a row in a transaction."""
    with transaction.atomic():
        UnroutedTask.objects.create(name=name, runs=self.request.retries, last_run_at=timezone.now())


@shared_task(fenced=True, max_retries=0)
def run_fenced(name: str) -> None:
    """Do nothing, once the database has the fence."""
