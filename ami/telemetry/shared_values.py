"""Values that one process makes for all: whoever finds one too old makes the next, the others show the last."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from ami.telemetry.models import SharedValue

#: Whoever makes a value has so long; then another process may.
TAKING = timedelta(seconds=15)


@dataclass(frozen=True)
class Shared:
    """A value as JSON, its version, and its age in seconds when it was read."""

    value: Any
    version: int
    age_seconds: float


def last(name: str) -> Shared | None:
    """Return the value as it is, None if there never was one; one statement."""
    row: Any = SharedValue.objects.filter(name=name).exclude(made_at=None).annotate(now=Now()).first()
    return Shared(row.value, row.version, (row.now - row.made_at).total_seconds()) if row else None


def current(name: str, max_age_seconds: float, make: Callable[[int], Any]) -> Shared:
    """Return the value, made anew where it is older than ``max_age_seconds`` and nobody makes it already.

    ``make`` gets the version and returns JSON. One statement where the value is new enough, otherwise three.
    """
    row = SharedValue.objects.filter(name=name).annotate(now=Now()).first()
    if row is None:
        SharedValue.objects.bulk_create([SharedValue(name=name)], ignore_conflicts=True)
        row = SharedValue.objects.annotate(now=Now()).get(name=name)
    age = (row.now - row.made_at).total_seconds() if row.made_at else float("inf")
    if age <= max_age_seconds or not _begins(name, row.version):
        if row.value is not None:
            return Shared(row.value, row.version, age)
        return Shared(make(0), 0, 0.0)
    began = time.monotonic()
    version = row.version + 1
    value = make(version)
    SharedValue.objects.filter(name=name, version=row.version).update(
        value=value, version=version, made_at=Now() - timedelta(seconds=time.monotonic() - began), taking_until=None
    )
    return Shared(value, version, 0.0)


def _begins(name: str, version: int) -> bool:
    """Whether this process makes the next version."""
    free = SharedValue.objects.filter(Q(taking_until=None) | Q(taking_until__lt=Now()), name=name, version=version)
    return bool(free.update(taking_until=Now() + TAKING))
