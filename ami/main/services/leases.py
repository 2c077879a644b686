"""Leases on names, kept as rows: one owner at a time, renewed while it works, expiring when it dies (incident 46)."""

from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from ami.main.models.bookkeeping import Lease

#: Longer than any single step between two renewals, and than the clocks of two hosts differ.
LEASE_SECONDS = 120.0


def acquire(name: str, owner: str, seconds: float = LEASE_SECONDS) -> Lease | None:
    """Take the lease when it is free, expired or already ours; None while another owner holds it."""
    Lease.objects.bulk_create([Lease(name=name, owner="", expires_at=timezone.now())], ignore_conflicts=True)
    now = timezone.now()
    free = Q(owner="") | Q(owner=owner) | Q(expires_at__lte=now)
    taken = Lease.objects.filter(free, name=name).update(owner=owner, expires_at=now + timedelta(seconds=seconds))
    return Lease.objects.get(name=name) if taken else None


def renew(name: str, owner: str, state: dict[str, Any], seconds: float = LEASE_SECONDS) -> bool:
    """Hold the lease for longer and save how far its work is; False when it is no longer ours.

    Called inside the transaction of a step it fences that step: until the commit nobody can take the lease, and
    where somebody has taken it the caller rolls back.
    """
    expires_at = timezone.now() + timedelta(seconds=seconds)
    return bool(Lease.objects.filter(name=name, owner=owner).update(expires_at=expires_at, state=state))


def release(name: str, owner: str) -> bool:
    """Give the lease back with its state, so that whoever takes it next goes on there; False when it was not ours."""
    return bool(Lease.objects.filter(name=name, owner=owner).update(owner="", expires_at=timezone.now()))
