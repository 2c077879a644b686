"""Leases on rows: one owner at a time, renewed during the work, expired when the owner dies (incident 46).

A row that can be leased has the columns ``lease_owner`` and ``lease_expires_at``. Work without a row of its own
leases a `Lease` by name. Each operation is one conditional UPDATE; ``values`` are more columns to set in it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db.models import Q, QuerySet
from django.utils import timezone

from ami.celery import connection_names
from ami.main.models.maintenance import Lease

#: Longer than any step between two renewals plus the clock skew between hosts.
LEASE_SECONDS = 120.0


def named(name: str) -> QuerySet[Lease]:
    """Return the row of the lease ``name``; create it if it is missing."""
    Lease.objects.bulk_create([Lease(name=name, lease_owner="")], ignore_conflicts=True)
    return Lease.objects.filter(name=name)


def lease_is_free() -> Q:
    """Return the condition that a row is not leased or its lease has expired."""
    return Q(lease_owner="") | Q(lease_expires_at__lte=timezone.now()) | Q(lease_expires_at__isnull=True)


def new_owner() -> str:
    """Return an owner for one run of a task, with the start of the worker that runs it (empty in no worker).

    Not the task's id: a redelivered copy has the same one, and two runs would hold one lease.
    """
    return f"{uuid4().hex}@{connection_names.incarnation().rpartition('#')[2]}"


def release_all(rows: QuerySet[Any], incarnation: str) -> int:
    """Release the leases of a worker that is dead, by the name of its start; return how many."""
    start = incarnation.rpartition("#")[2]
    if not start:
        return 0
    return rows.filter(lease_owner__endswith=f"@{start}").update(lease_owner="", lease_expires_at=None)


def release_named(incarnation: str) -> None:
    """Release the leases by name of a worker that is dead."""
    release_all(Lease.objects.all(), incarnation)


def acquire(
    rows: QuerySet[Any], owner: str, seconds: float = LEASE_SECONDS, *, also: Q | None = None, **values: Any
) -> bool:
    """Acquire a lease that is free, expired or already the owner's; False while another owner holds it.

    ``also``: further rows whose lease is taken over; the run that held it cannot renew it any more.
    """
    free = lease_is_free() | Q(lease_owner=owner)
    if also is not None:
        free |= also
    return bool(rows.filter(free).update(lease_owner=owner, lease_expires_at=_in(seconds), **values))


def renew(rows: QuerySet[Any], owner: str, seconds: float = LEASE_SECONDS, **values: Any) -> bool:
    """Extend the lease; False if the owner has lost it.

    Inside the transaction of a step this fences the step: until the commit no other owner can acquire the lease, and if
    one already has, the caller rolls back.
    """
    return bool(rows.filter(lease_owner=owner).update(lease_expires_at=_in(seconds), **values))


def release(rows: QuerySet[Any], owner: str, **values: Any) -> bool:
    """Release the lease; False if the owner has lost it."""
    return bool(rows.filter(lease_owner=owner).update(lease_owner="", lease_expires_at=None, **values))


@contextmanager
def held(name: str) -> Iterator[tuple[QuerySet[Lease], str] | None]:
    """Hold the lease ``name`` within the block: its row and the owner; None while another owner holds it."""
    lease, owner = named(name), new_owner()
    if not acquire(lease, owner):
        yield None
        return
    try:
        yield lease, owner
    finally:
        release(lease, owner)


def _in(seconds: float) -> Any:
    return timezone.now() + timedelta(seconds=seconds)
