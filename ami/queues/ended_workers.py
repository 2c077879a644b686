"""Keeps what workers had counted when they ended, until the sampler has counted it."""

from collections.abc import Mapping
from typing import Any

from django.db.models.functions import Now

from ami.queues.models import EndedWorker


def keep(connection_name: str, totals: Mapping[str, Any]) -> None:
    """Keep the last totals of one start of a worker; one statement. Kept again, the latest count."""
    row = EndedWorker(connection_name=connection_name, totals=totals, ended_at=Now())
    EndedWorker.objects.bulk_create(
        [row], update_conflicts=True, unique_fields=["connection_name"], update_fields=["totals", "ended_at"]
    )
