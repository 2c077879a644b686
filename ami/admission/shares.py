"""The work of fair keys: each run that has begun is charged to its key, however it ends."""

from collections.abc import Collection
from datetime import timedelta

from celery import current_app
from django.db import connection
from django.db.models.functions import Now
from kombu.utils import json

from ami.admission.models import Bucket, Call, Run, Share
from ami.celery import database_times

#: A key without a run for so long has no row: it begins where the others are, as any idle key does.
KEEP = timedelta(days=1)

_TABLE = Share._meta.db_table
_BEGIN = f"""
INSERT INTO {_TABLE} (queue, fair_key, used, used_at) VALUES {{rows}}
ON CONFLICT (queue, fair_key) DO UPDATE SET used_at = EXCLUDED.used_at,
    used = CASE WHEN {_TABLE}.used < EXCLUDED.used THEN EXCLUDED.used ELSE {_TABLE}.used END
"""  # noqa: S608 - names of the model
_CHARGE = f"""
UPDATE {_TABLE} SET used = used + {{seconds}} / ended.weight, used_at = {{now}} FROM {{ended}} AS ended
WHERE {_TABLE}.queue = ended.queue AND {_TABLE}.fair_key = ended.fair_key
"""  # noqa: S608


def begin(queue: str, fair_keys: Collection[str], virtual: float) -> None:
    """Let the work of these keys begin at a queue's virtual time, if they have used less; one statement."""
    statement = _BEGIN.format(
        rows=", ".join([f"(%s, %s, %s, {database_times.now_beside_parameters()})"] * len(fair_keys))
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [value for key in sorted(fair_keys) for value in (queue, key, virtual)])


def charging(ended: str, most: bool = False) -> str:
    """Return the statement that charges runs to their keys: the seconds since they began, over their weight.

    ``ended`` is SQL for the runs' rows. With ``most`` the first parameter is the most seconds to charge.
    """
    if connection.vendor == "postgresql":
        seconds, least, greatest = (
            f"EXTRACT(EPOCH FROM {database_times.now_beside_parameters()} - ended.began_at)",
            "LEAST",
            "GREATEST",
        )
    else:
        seconds, least, greatest = "(JULIANDAY('now') - JULIANDAY(ended.began_at)) * 86400.0", "MIN", "MAX"
    seconds = f"{greatest}({seconds}, 0)"
    return _CHARGE.format(
        seconds=f"{least}({seconds}, %s)" if most else seconds, now=database_times.now_beside_parameters(), ended=ended
    )


def charge(run: Run) -> None:
    """Charge a run that has begun to its fair key, at most its hard time limit; before its row is deleted.

    What ends it may have noticed late that its process was dead. Two statements, none without a fair key.
    """
    if not run.fair_key or run.began_at is None:
        return
    row = f"(SELECT * FROM {Run._meta.db_table} WHERE id = %s AND began_at IS NOT NULL)"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(charging(row, most=True), [_hard_limit(run), run.pk])


def _hard_limit(run: Run) -> float:
    """Return the seconds after which a run is killed: those of its call, its task or its queue's workers."""
    options = Call.objects.filter(pk=run.call).values_list("options", flat=True).first()
    given = json.loads(options).get("time_limit") if options else None
    own = getattr(current_app.tasks.get(run.task), "time_limit", None)
    topology = current_app.topology
    of_queue = topology.workload(run.queue).hard_time_limit_seconds if run.queue in topology.queues else None
    return float(given or own or of_queue or KEEP.total_seconds())


def forget() -> None:
    """Delete what was not used for a day: the work of keys and their rates."""
    Share.objects.filter(used_at__lt=Now() - KEEP).delete()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {database_times.now()}")
        now = database_times.moment(cursor.fetchone()[0]).timestamp()
    Bucket.objects.filter(arrival__lt=now - KEEP.total_seconds()).delete()
