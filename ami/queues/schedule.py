"""What beat schedules, declared in code beside the tasks and synchronised into the database."""

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from django.apps import apps
from django.db import transaction
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.celery.tick_claims import MISFIRES, NONE
from ami.queues.models import TickClaim

#: Rows that this table wrote carry it, so that a task removed from the code is removed from the schedule.
MARK = "declared in code"


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """One beat entry: every so many seconds, dropped unrun when it could not start before ``expires_seconds``.

    ``misfire`` says what becomes of late ticks: nothing (`NONE`), one run for all of them (`ONE`), or one for each
    (`ALL`). With the last two a tick does not expire: ``expires_seconds`` is 0.

    Raises:
        ValueError: the entry would outlive its own next tick, so that ticks could pile up; no such policy.
    """

    task: str
    every_seconds: int
    expires_seconds: int = 0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    misfire: str = NONE

    def __post_init__(self) -> None:
        if self.misfire not in MISFIRES:
            raise ValueError(f"{self.task}: misfire is '{self.misfire}'; give one of {', '.join(MISFIRES)}.")
        if self.misfire != NONE:
            if self.expires_seconds or self.every_seconds <= 0:
                raise ValueError(
                    f'{self.task}: with misfire="{self.misfire}" no tick expires: leave expires_seconds out.'
                )
            return
        if not 0 < self.expires_seconds < self.every_seconds:
            raise ValueError(
                f"{self.task}: expires_seconds ({self.expires_seconds}) must be above 0 and below every_seconds "
                f"({self.every_seconds}), or late ticks pile up behind each other."
            )

    @property
    def entry(self) -> str:
        """The name of the row in the schedule."""
        return self.name or self.task


def declared() -> Iterator[Scheduled]:
    """Yield the entries of every installed app's ``schedule`` module."""
    for module in modules("schedule"):
        yield from getattr(module, "SCHEDULE", ())


def modules(name: str) -> Iterator[ModuleType]:
    """Yield the modules of this name of the installed apps that have one."""
    for app in apps.get_app_configs():
        try:
            yield importlib.import_module(f"{app.name}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{app.name}.{name}":
                raise


@transaction.atomic
def synchronise() -> dict[str, int]:
    """Write the declared entries into django-celery-beat's tables; entries of users stay as they are.

    An operator's switch ``enabled`` on a declared entry is kept. Returns counts of created, updated and removed rows.
    """
    counts = {"created": 0, "updated": 0, "removed": 0}
    names = set()
    for scheduled in declared():
        created = _write(scheduled)
        names.add(scheduled.entry)
        counts["created" if created else "updated"] += 1
    removed = PeriodicTask.objects.filter(description=MARK).exclude(name__in=names)
    counts["removed"] = removed.count()
    removed.delete()
    return counts


def _write(scheduled: Scheduled) -> bool:
    interval, _ = IntervalSchedule.objects.get_or_create(every=scheduled.every_seconds, period="seconds")
    entry, created = PeriodicTask.objects.update_or_create(
        name=scheduled.entry,
        defaults={
            "task": scheduled.task,
            "interval": interval,
            "crontab": None,
            "kwargs": json.dumps(dict(scheduled.kwargs)),
            "expire_seconds": scheduled.expires_seconds or None,
            "description": MARK,
        },
    )
    TickClaim.objects.update_or_create(entry=entry, defaults={"misfire": scheduled.misfire})
    return bool(created)
