"""Leases by name, for work without a row of its own: one process of the deployment does it at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ami.celery import leases
from ami.queues.models import Lease

#: Longer than any step of a task between two renewals.
TASK_SECONDS = 120.0


def take(name: str, holder: str, seconds: float) -> bool:
    """Take or renew the lease; return False if another process holds it. One statement for its holder."""
    return bool(leases.take_keys(Lease.objects.all(), [name], holder, seconds))


def renew(name: str, holder: str, **values: Any) -> bool:
    """Renew a task's lease, and set ``values`` of its row; return False if another process has taken it."""
    return bool(leases.renew(Lease.objects.filter(name=name), holder, TASK_SECONDS, **values))


def hold(name: str, holder: str) -> bool:
    """Keep the lease from other processes until the transaction ends; return False if another one has taken it."""
    return bool(Lease.objects.filter(name=name, holder=holder).update(holder=holder))


def release(name: str, holder: str) -> None:
    leases.release(Lease.objects.filter(name=name), holder)


def release_of_dead(incarnation: str) -> None:
    """Release the leases of a dead worker's tasks; a listener of `ami.queues.rescue.gone`."""
    leases.release_of_dead(Lease.objects.all(), incarnation)


@contextmanager
def held(name: str) -> Iterator[str | None]:
    """Hold the lease for one run of a task within the block: its holder; None while another process holds it."""
    holder = leases.new_holder()
    if not take(name, holder, TASK_SECONDS):
        yield None
        return
    try:
        yield holder
    finally:
        release(name, holder)
