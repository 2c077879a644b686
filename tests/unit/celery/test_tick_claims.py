"""Claims of ticks that were lost, repeated or retried without end: one-off entries, a rollback, a failing publish."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, IntervalSchedule, PeriodicTask
from kombu import Producer
from kombu.exceptions import OperationalError

from ami.celery.claimed_ticks import LOOK_SECONDS, PATIENCE_SECONDS
from ami.queues.models import TickClaim
from tests.support.beat_simulation import Killed, KillsOnce, VirtualClaims, VirtualClock, connected, scheduler_on
from tests.support.beats import Published, new_beat, publishes, run_due

TASK = "ami.jobs.tasks.audit_data_integrity"
EVERY = 3600

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]

NewBeat = Callable[[str], Any]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(timezone.now())


@pytest.fixture
def published() -> Iterator[list[Published]]:
    with publishes() as collected:
        yield collected


@pytest.fixture
def beat(clock: VirtualClock, published: list[Published]) -> Iterator[NewBeat]:
    with connected(VirtualClaims(clock)):
        yield lambda name: new_beat(scheduler_on(clock), name=name)


def entry(clock: VirtualClock, **fields: Any) -> PeriodicTask:
    interval, _ = IntervalSchedule.objects.get_or_create(every=EVERY, period="seconds")
    values = {"name": "ours", "task": TASK, "interval": interval, "last_run_at": clock.now() - timedelta(hours=2)}
    return PeriodicTask.objects.create(**{**values, **fields})


@pytest.mark.parametrize("clocked", [False, True])
def test_one_off_tick_of_a_killed_beat_is_sent_once(
    clock: VirtualClock, beat: NewBeat, published: list[Published], clocked: bool
):
    due: dict[str, Any] = {}
    if clocked:
        due = {"interval": None, "clocked": ClockedSchedule.objects.create(clocked_time=clock.now())}
    entry(clock, one_off=True, last_run_at=None, **due)
    PeriodicTask.objects.update(date_changed=clock.now() - timedelta(hours=2))
    with connected(KillsOnce("claimed", clock)):
        with pytest.raises(Killed):
            run_due(beat("killed"))
        other = beat("other")
        for _ in range(6):
            run_due(other)
            clock.elapsed += LOOK_SECONDS
    claim = TickClaim.objects.get(entry__task=TASK)
    assert [each.task_id for each in published if each.entry == "ours"] == [claim.task_id]
    assert claim.is_sent
    assert PeriodicTask.objects.get(name="ours").enabled is False


def test_last_run_in_the_future_does_not_replace_the_claim(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    row = entry(clock, last_run_at=clock.now() + timedelta(hours=5))
    TickClaim.objects.create(entry=row, number=10, claimed_at=clock.now() - timedelta(hours=2), runs=10)
    run_due(beat("a"))
    assert "ours" in {each.entry for each in published}


def test_claim_of_an_entry_that_an_earlier_version_deleted_is_removed(clock: VirtualClock, beat: NewBeat):
    row = entry(clock)
    TickClaim.objects.create(entry=row, is_sent=False)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_celery_beat_periodictask WHERE id = %s", [row.pk])
    run_due(beat("a"))
    assert not TickClaim.objects.filter(pk=row.pk).exists()


def test_tick_that_cannot_be_published_is_retried_less_and_less(
    clock: VirtualClock,
    beat: NewBeat,
    published: list[Published],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    entry(clock)
    running = beat("a")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Producer, "_publish", lambda *_, **__: (_ for _ in ()).throw(OperationalError("refused")))
        for _ in range(120):
            run_due(running)
            clock.elapsed += 5
    claim = TickClaim.objects.get(entry__task=TASK)
    assert 4 <= claim.tries <= 8
    assert claim.repeats == 0
    own = [record for record in caplog.records if record.name in ("celery.beat", "ami.celery.scheduler")]
    assert len([record for record in own if record.exc_info]) == 1
    assert len(own) == claim.tries + 1
    clock.elapsed += 300 + PATIENCE_SECONDS
    run_due(running)
    claim.refresh_from_db()
    assert [each.task_id for each in published if each.entry == "ours"] == [claim.task_id]
    assert (claim.is_sent, claim.repeats) == (True, 1)
