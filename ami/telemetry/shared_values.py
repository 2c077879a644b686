"""Values that one process makes for all: the first that finds one too old makes the next, the others show the last."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Case, F, JSONField, Q, When
from django.db.models.functions import Now

from ami.telemetry.models import SharedValue

#: The process that makes a value has so long; then another one may.
TAKING = timedelta(seconds=15)
#: An outdated value counts as this much older: more than any reader accepts.
OUTDATED = timedelta(minutes=1)


@dataclass(frozen=True)
class Shared:
    """A value as JSON, its version, and its age in seconds when it was read; None for a value that is known."""

    value: Any
    version: int
    age_seconds: float


def last(name: str) -> Shared | None:
    """Return the value as it is, None if there never was one; one statement."""
    row: Any = SharedValue.objects.filter(name=name).exclude(made_at=None).annotate(now=Now()).first()
    return Shared(row.value, row.version, (row.now - row.made_at).total_seconds()) if row else None


def version(name: str) -> int:
    """Return the value's version, 0 where there is no value; one statement."""
    return SharedValue.objects.filter(name=name).values_list("version", flat=True).first() or 0


def current(name: str, max_age_seconds: float, make: Callable[[int], Any], known: int = 0) -> Shared:
    """Return the value, made again where it is older than ``max_age_seconds`` and no process makes it already.

    ``make`` gets the version and returns JSON. The value of the version ``known`` is not read, but None. One statement
    where the value is new enough, otherwise three.
    """
    row = _row(name, known)
    if row is None:
        SharedValue.objects.bulk_create([SharedValue(name=name)], ignore_conflicts=True)
        row = _row(name, known)
    assert row is not None
    if row.age_seconds <= max_age_seconds or not _begins(name, row.version):
        if row.value is not None or row.version == known != 0:
            return row
        return Shared(make(0), 0, 0.0)
    began = time.monotonic()
    version = row.version + 1
    value = make(version)
    SharedValue.objects.filter(name=name, version=row.version).update(
        value=value, version=version, made_at=Now() - timedelta(seconds=time.monotonic() - began), taking_until=None
    )
    return Shared(value, version, 0.0)


def _row(name: str, known: int) -> Shared | None:
    value = Case(When(version=known, then=None), default="value", output_field=JSONField())
    row: Any = SharedValue.objects.filter(name=name).values_list("version", "made_at", Now(), value).first()
    if row is None:
        return None
    version, made_at, now, found = row
    return Shared(found, version, (now - made_at).total_seconds() if made_at else float("inf"))


def outdate(name: str, older_seconds: float = 0.0) -> None:
    """Let the next reader of any process make the value again; what is being made now is not kept.

    With ``older_seconds`` only a value that is older than this, and that was made in the last minute: an older one
    has no reader. One statement.
    """
    rows = SharedValue.objects.filter(name=name)
    if older_seconds:
        rows = rows.filter(made_at__lt=Now() - timedelta(seconds=older_seconds), made_at__gt=Now() - OUTDATED)
    rows.update(version=F("version") + 1, made_at=F("made_at") - OUTDATED, taking_until=None)


def _begins(name: str, version: int) -> bool:
    """Whether this process makes the next version."""
    free = SharedValue.objects.filter(Q(taking_until=None) | Q(taking_until__lt=Now()), name=name, version=version)
    return bool(free.update(taking_until=Now() + TAKING))
