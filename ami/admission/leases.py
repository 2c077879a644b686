"""Which process dispatches the calls of a queue: a lease by the database's clock, renewed in each pick."""

from collections.abc import Collection
from datetime import timedelta
from typing import NamedTuple

from django.db.models import Q
from django.db.models.functions import Now

from ami.admission.models import DispatcherLease

SECONDS = 20.0


def acquire(queues: Collection[str], holder: str) -> set[str]:
    """Take or renew the leases that are free; return the queues whose lease is held.

    One statement for the process that holds all of them, two for another one, at first three.
    """
    until = Now() + timedelta(seconds=SECONDS)
    rows = DispatcherLease.objects.filter(queue__in=queues)
    if rows.filter(Q(holder=holder) | Q(until__lt=Now())).update(holder=holder, until=until) == len(queues):
        return set(queues)
    held = dict(rows.values_list("queue", "holder"))
    if missing := set(queues) - held.keys():
        made = [DispatcherLease(queue=queue, holder=holder, until=until) for queue in missing]
        DispatcherLease.objects.bulk_create(made, ignore_conflicts=True)
        held = dict(rows.values_list("queue", "holder"))
    return {queue for queue, each in held.items() if each == holder}


class Lease(NamedTuple):
    """The virtual time of a queue, and the database's time in epoch seconds."""

    virtual: float
    now: float


def renew(queue: str, holder: str) -> Lease | None:
    """Renew a lease as the first statement of a transaction: until its end no other process picks from the queue.

    None: another process has it.
    """
    mine = DispatcherLease.objects.filter(queue=queue, holder=holder, until__gt=Now())
    if not mine.update(until=Now() + timedelta(seconds=SECONDS)):
        return None
    virtual, now = mine.values_list("virtual", Now()).get()
    return Lease(float(virtual), now.timestamp())


def release(holder: str) -> None:
    """Let another process dispatch at once."""
    DispatcherLease.objects.filter(holder=holder).update(until=Now() - timedelta(seconds=1))
