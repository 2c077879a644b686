"""A lease in the database, by its clock: one process of the deployment holds it at a time."""

from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from ami.queues.models import Lease


def acquire(name: str, holder: str, seconds: float, now: Any = None) -> bool:
    """Take or renew the lease; return False if another process holds it. One statement, the first time two.

    ``now`` is another time than the database's.
    """
    now = now or Now()
    until = now + timedelta(seconds=seconds)
    free = Lease.objects.filter(Q(holder=holder) | Q(until__lt=now), name=name)
    if free.update(holder=holder, until=until):
        return True
    created = Lease.objects.bulk_create([Lease(name=name, holder=holder, until=until)], ignore_conflicts=True)
    return bool(created) and Lease.objects.filter(name=name, holder=holder, until__gt=now).exists()


def hold(name: str, holder: str) -> bool:
    """Keep the lease from other processes until the transaction ends; return False if this process has it no more."""
    held = Lease.objects.filter(name=name, holder=holder, until__gt=Now())
    return bool(held.update(holder=holder))


def release(name: str, holder: str) -> None:
    """Give the lease up, if this process holds it."""
    Lease.objects.filter(name=name, holder=holder).update(until=Now() - timedelta(seconds=1))
