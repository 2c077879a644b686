"""Leases on rows: one owner at a time, renewed while it works, expiring when it dies (incident 46).

A row that can be leased has the columns ``lease_owner`` and ``lease_expires_at``. Work that has no row of its own
leases a `Lease` by name. Each change is one conditional UPDATE, whose other columns the caller may add.
"""

from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from ami.main.models.maintenance import Lease

#: Longer than any single step between two renewals, and than the clocks of two hosts differ.
LEASE_SECONDS = 120.0


def named(name: str) -> QuerySet[Lease]:
    """Return the row of the lease ``name``, made if it was missing."""
    Lease.objects.bulk_create([Lease(name=name, lease_owner="")], ignore_conflicts=True)
    return Lease.objects.filter(name=name)


def lease_is_free() -> Q:
    """Return the condition that no live lease exists."""
    return Q(lease_owner="") | Q(lease_expires_at__lte=timezone.now()) | Q(lease_expires_at__isnull=True)


def acquire(rows: QuerySet[Any], owner: str, seconds: float = LEASE_SECONDS, **values: Any) -> bool:
    """Take the lease of a row when it is free, expired or the owner's already; False while another owner holds it."""
    free = lease_is_free() | Q(lease_owner=owner)
    return bool(rows.filter(free).update(lease_owner=owner, lease_expires_at=_in(seconds), **values))


def renew(rows: QuerySet[Any], owner: str, seconds: float = LEASE_SECONDS, **values: Any) -> bool:
    """Hold the lease for longer; False when it is no longer the owner's.

    Called inside the transaction of a step it fences that step: until the commit nobody else can take the lease, and
    where another owner has taken it the caller rolls back.
    """
    return bool(rows.filter(lease_owner=owner).update(lease_expires_at=_in(seconds), **values))


def release(rows: QuerySet[Any], owner: str, **values: Any) -> bool:
    """Free the lease for the next owner; False when another owner holds it."""
    return bool(rows.filter(lease_owner=owner).update(lease_owner="", lease_expires_at=None, **values))


def _in(seconds: float) -> Any:
    return timezone.now() + timedelta(seconds=seconds)
