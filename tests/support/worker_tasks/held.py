"""Tasks that write to the database and take their time, for the acceptance tests."""

import os
import time
from pathlib import Path
from typing import Any

from celery import shared_task
from django.db import transaction


@shared_task(bind=True)
def write_and_hold(self: Any, seconds: float) -> None:
    """Write a row, say so in a file, and hold the transaction open for a while."""
    from ami.queues.models import Lease

    with transaction.atomic():
        Lease.objects.update_or_create(name="held", defaults={"holder": "a test", "until": "2030-01-01T00:00:00Z"})
        Path(os.environ["ANTENNA_TEST_FOLDER"], str(self.request.id)).touch()
        time.sleep(seconds)


@shared_task(bind=True, fenced=True)
def commit_after(self: Any, seconds: float) -> None:
    """Say in a file that it runs, and commit a row of its own after a while."""
    from ami.queues import fence
    from ami.queues.models import AuditEntry

    Path(os.environ["ANTENNA_TEST_FOLDER"], f"{self.request.id}.{self.request.hostname}").touch()
    time.sleep(seconds)
    with transaction.atomic():
        AuditEntry.objects.create(verb="committed", who=self.request.hostname, target=str(self.request.id))
        fence.check()
