"""Which process dispatches the calls of a queue: a lease by the database's clock, renewed in each pick."""

from collections.abc import Collection
from typing import NamedTuple

from django.db import connection

from ami.admission.models import DispatcherLease, Run
from ami.celery import database_times, leases
from ami.celery.database_times import moment

SECONDS = 20.0

_STATE = f"""
SELECT lease.virtual, {{now}}, run.fair_key, COUNT(run.id) FROM {DispatcherLease._meta.db_table} AS lease
LEFT JOIN {Run._meta.db_table} AS run ON run.queue = lease.queue
WHERE lease.queue = %s GROUP BY lease.virtual, run.fair_key
"""  # noqa: S608 - names of the models


def acquire(queues: Collection[str], holder: str) -> set[str]:
    """Take or renew the leases that are free; return the queues whose lease is held."""
    return leases.take_keys(DispatcherLease.objects.all(), queues, holder, SECONDS)


class Lease(NamedTuple):
    """The virtual time of a queue, the database's time in epoch seconds, and how many runs each fair key has."""

    virtual: float
    now: float
    runs: dict[str, int]


def renew(queue: str, holder: str) -> Lease | None:
    """Renew a lease as the first statement of a transaction: until its end no other process picks from the queue.

    None: another process has it. Two statements.
    """
    if not leases.renew(DispatcherLease.objects.filter(queue=queue), holder, SECONDS):
        return None
    with connection.cursor() as cursor:
        cursor.execute(_STATE.format(now=database_times.now_beside_parameters()), [queue])
        rows = cursor.fetchall()
    return Lease(float(rows[0][0]), moment(rows[0][1]).timestamp(), {row[2]: row[3] for row in rows if row[3]})


def release(holder: str) -> None:
    """Let another process dispatch at once."""
    leases.release(DispatcherLease.objects.all(), holder)
