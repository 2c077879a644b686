"""Counts the calls that were merged or dropped, by task, hour and why, for operators."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection
from django.db.models import Max, Sum

from ami.admission.models import Outcome

KEEP = timedelta(days=30)

_TABLE = Outcome._meta.db_table
_ADD = f"""
INSERT INTO {_TABLE} (task, why, hour, calls) VALUES (%s, %s, %s, %s)
ON CONFLICT (hour, task, why) DO UPDATE SET calls = {_TABLE}.calls + EXCLUDED.calls
"""  # noqa: S608 - names of the model


@dataclass(frozen=True)
class Counted:
    """How many calls of a task had one outcome, and the hour of the last one; ``why`` is a sentence."""

    task: str
    why: str
    calls: int
    last_hour: datetime


def count(task: str, why: str, calls: int) -> None:
    """Add calls to this hour's; one statement of the caller's transaction."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with connection.cursor() as cursor:
        prepared = Outcome._meta.get_field("hour").get_db_prep_save(hour, connection)
        cursor.execute(_ADD, [task, why, prepared, calls])


def counted(hours: int, *, task: str = "", limit: int = 100) -> list[Counted]:
    """Return what became of calls in so many hours, this one included, the most first; one statement."""
    since = datetime.now(UTC) - timedelta(hours=hours)
    rows = Outcome.objects.filter(hour__gt=since, **({"task": task} if task else {})).order_by()
    found = rows.values_list("task", "why").annotate(sum=Sum("calls"), last=Max("hour")).order_by("-sum", "task", "why")
    return [Counted(name, Outcome.Why(why).label, calls, last) for name, why, calls, last in found[:limit]]


def forget() -> None:
    """Delete the counts of hours longer ago than `KEEP`."""
    Outcome.objects.filter(hour__lt=datetime.now(UTC) - KEEP).delete()
