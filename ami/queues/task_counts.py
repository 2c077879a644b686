"""Adds up how many tasks of each queue ended, by the hour."""

from collections.abc import Mapping

from django.db import connection
from django.utils import timezone

from ami.queues.models import TaskCount


def add(counts: Mapping[str, tuple[int, int]]) -> None:
    """Add (completed, failed) of each queue to the current hour; one statement, none for an empty mapping."""
    if not counts:
        return
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    fields = [field for field in TaskCount._meta.concrete_fields if field.name != "id"]
    values = [
        field.get_db_prep_save(value, connection)
        for queue, (completed, failed) in sorted(counts.items())
        for field, value in zip(fields, (queue[:255], hour, completed, failed), strict=True)
    ]
    table = TaskCount._meta.db_table
    rows = ", ".join(["(%s, %s, %s, %s)"] * len(counts))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (queue, hour, completed, failed) VALUES {rows} "  # noqa: S608 - names of columns alone
            f"ON CONFLICT (queue, hour) DO UPDATE SET completed = {table}.completed + excluded.completed, "
            f"failed = {table}.failed + excluded.failed",
            values,
        )
