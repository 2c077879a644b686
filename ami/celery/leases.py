"""Leases on rows of any model with the columns ``holder`` and ``until``: one holder at a time, by the database's clock.

The holder renews its lease during the work; the lease of a holder that died ends. Each function is one conditional
UPDATE, which sets ``values`` too. A renewal as the first statement of a step's transaction fences the step: no other
process can take the lease before its end, and a holder that has lost it rolls back.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from ami.celery import connection_names


def is_free() -> Q:
    return Q(holder="") | Q(until__lte=Now())


def end(seconds: float) -> Any:
    """Return when a lease ends that is taken now."""
    return Now() + timedelta(seconds=seconds)


def take(rows: QuerySet[Any], holder: str, seconds: float, *, also: Q | None = None, **values: Any) -> int:
    """Take the leases that are free, and those of ``also`` from their holders, or renew them; return how many."""
    free = is_free() | Q(holder=holder) | (also or Q())
    return rows.filter(free).update(holder=holder, until=end(seconds), **values)


def take_keys(rows: QuerySet[Any], keys: Collection[str], holder: str, seconds: float) -> set[str]:
    """Take or renew the leases with these primary keys, created where missing; return the keys that are held.

    One statement for the holder of all, two for another process, at first more.
    """
    found = rows.filter(pk__in=keys)
    if take(found, holder, seconds) == len(keys):
        return set(keys)
    holders = dict(found.values_list("pk", "holder"))
    if missing := set(keys) - holders.keys():
        rows.bulk_create([rows.model(pk=key, until=Now()) for key in missing], ignore_conflicts=True)
        return take_keys(rows, keys, holder, seconds)
    return {key for key, each in holders.items() if each == holder}


def renew(rows: QuerySet[Any], holder: str, seconds: float, **values: Any) -> int:
    """Renew the holder's leases; return how many. One that has ended is still the holder's until another takes it."""
    return rows.filter(holder=holder).update(until=end(seconds), **values)


def release(rows: QuerySet[Any], holder: str, **values: Any) -> int:
    """Release the holder's leases; return how many."""
    return rows.filter(holder=holder).update(holder="", until=Now(), **values)


def new_holder() -> str:
    """Return a holder for one run of a task, with the start of the worker that runs it (empty in no worker).

    Not the task's id: a redelivered copy has the same one, and two runs would hold one lease.
    """
    return f"{uuid4().hex}@{connection_names.incarnation().rpartition('#')[2]}"


def release_of_dead(rows: QuerySet[Any], incarnation: str) -> int:
    """Release the leases of the runs of a worker that is dead, by the name of its start; return how many."""
    start = incarnation.rpartition("#")[2]
    return rows.filter(holder__endswith=f"@{start}").update(holder="", until=Now()) if start else 0
