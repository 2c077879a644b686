"""The claims of beat's ticks in the database: each by one conditional update, on PostgreSQL and SQLite alike."""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import models, transaction
from django.db.models import ExpressionWrapper, F
from django.db.models.functions import Now
from django_celery_beat.models import PeriodicTask

from ami.celery.tick_claims import Tick
from ami.queues import waiting_ticks
from ami.queues.models import Beat, TickClaim

#: A beat that was killed leaves its row; the next start of any beat removes it after this time.
FORGET = timedelta(days=1)


class DatabaseTickClaims:
    """Implements `ami.celery.tick_claims.TickClaims`."""

    def now(self) -> Any:
        """Return the database's time."""
        return Now()

    def states(self) -> dict[int, Tick]:
        return {row.pk: _tick(row) for row in self._claims()}

    def state(self, entry: int) -> Tick | None:
        row = self._claims().filter(entry=entry).first()
        return _tick(row) if row else None

    def add(self, entries: Collection[int]) -> None:
        there = PeriodicTask.objects.filter(pk__in=entries).values_list("pk", flat=True)
        TickClaim.objects.bulk_create([TickClaim(entry_id=entry) for entry in there], ignore_conflicts=True)

    def claim(self, tick: Tick, beat: str, *, is_first: bool) -> bool:
        claimable = TickClaim.objects.filter(entry=tick.entry, number=tick.number - 1)
        values = {
            "number": tick.number,
            "task_id": tick.task_id,
            "claimed_at": tick.claimed_at,
            "claimed_since": self.now(),
            "claimed_by": beat,
            "runs": tick.runs,
            "is_sent": False,
            "ended_at": None,
            "tries": 0,
        }
        if not is_first:
            return bool(claimable.filter(is_sent=True).update(**values))
        with transaction.atomic():
            if not claimable.update(**values):
                return False
            # At once, not at beat's next synchronisation: an entry without a last run counts as enabled anew.
            entry = PeriodicTask.objects.filter(pk=tick.entry)
            return bool(entry.update(last_run_at=tick.claimed_at, total_run_count=tick.runs))

    def claim_again(self, tick: Tick, beat: str) -> Tick | None:
        unsent = self._claim(tick).filter(is_sent=False, tries=tick.tries)
        if not unsent.update(tries=F("tries") + 1, claimed_by=beat):
            return None
        return replace(tick, tries=tick.tries + 1)

    def mark_sent(self, tick: Tick) -> None:
        self._claim(tick).update(is_sent=True, repeats=F("repeats") + int(tick.tries > 0))

    def unsent(self) -> list[Tick]:
        return [_tick(row) for row in self._claims().filter(is_sent=False, entry__enabled=True)]

    def ended(self, task_ids: Collection[str]) -> None:
        TickClaim.objects.filter(task_id__in=task_ids, ended_at=None).update(ended_at=Now(), ends=F("ends") + 1)

    def why_withheld(self, tick: Tick) -> str:
        return waiting_ticks.why_withheld(self._claim(tick))

    def beat_started(self, beat: str) -> None:
        # Of entries that were deleted while a beat claimed their tick.
        TickClaim.objects.exclude(entry__in=PeriodicTask.objects.values("pk")).delete()
        Beat.objects.filter(seen_at__lt=Now() - FORGET).delete()
        Beat.objects.update_or_create(name=beat, defaults={"started_at": Now(), "seen_at": Now()})

    def beat_alive(self, beat: str) -> None:
        if not Beat.objects.filter(name=beat).update(seen_at=Now()):
            self.beat_started(beat)

    def beat_stopped(self, beat: str) -> None:
        Beat.objects.filter(name=beat).delete()

    def _claims(self) -> "models.QuerySet[TickClaim]":
        return TickClaim.objects.annotate(now=ExpressionWrapper(self.now(), models.DateTimeField()))

    def _claim(self, tick: Tick) -> "models.QuerySet[TickClaim]":
        return TickClaim.objects.filter(entry=tick.entry, number=tick.number)


def _tick(row: Any) -> Tick:
    age = (row.now - row.claimed_since).total_seconds() if row.claimed_since else None
    return Tick(row.pk, row.number, row.task_id, row.claimed_at, row.runs, row.is_sent, row.tries, row.misfire, age)


#: This process's, which `config` connects.
CLAIMS = DatabaseTickClaims()
