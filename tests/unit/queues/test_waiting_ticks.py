"""At most one tick of an entry waits or runs: beat sends the next one when that has ended."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.db.models.functions import Now
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.celery.origin import BEAT
from ami.celery.tick_claims import NONE, ONE
from ami.queues import messages
from ami.queues.models import DesiredState, TaskRun, TickClaim, Worker
from ami.queues.wishes import Operator
from tests.support.beat_simulation import VirtualClock, scheduler_on
from tests.support.beats import Published, new_beat, publishes, run_due
from tests.support.brokers import celery_at

TASK = "ami.jobs.tasks.audit_data_integrity"
EVERY = 60

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(timezone.now())


@pytest.fixture
def published() -> Iterator[list[Published]]:
    with publishes() as collected:
        yield collected


@pytest.fixture
def beat(clock: VirtualClock, published: list[Published], settings: Any) -> Any:
    """A beat whose entry is due at once, in a deployment whose workers report themselves."""
    interval, _ = IntervalSchedule.objects.get_or_create(every=EVERY, period="seconds")
    last = clock.now() - timedelta(hours=1)
    PeriodicTask.objects.create(name="ours", task=TASK, interval=interval, last_run_at=last, expire_seconds=EVERY - 10)
    made = new_beat(scheduler_on(clock), name="a")
    run_due(made)
    assert len(published) == 1
    return made


def queue(settings: Any) -> str:
    return str(settings.ANTENNA_TOPOLOGY.place(TASK, BEAT).queue)


def reading_worker(settings: Any, **fields: Any) -> Worker:
    started_at = timezone.now() - timedelta(days=1)
    values = {"host": "a", "queues": [queue(settings)], "pid": 1, "started_at": started_at, "seen_at": Now()}
    return Worker.objects.create(node="w@a", **values | fields)


def pass_time(clock: VirtualClock, beat: Any, ticks: int = 3) -> None:
    for _ in range(ticks):
        clock.elapsed += EVERY
        run_due(beat)


def test_next_tick_is_sent_when_the_last_one_has_ended(
    beat: Any, clock: VirtualClock, published: list[Published], settings: Any, caplog: pytest.LogCaptureFixture
):
    reading_worker(settings)
    pass_time(clock, beat)
    assert len(published) == 1
    assert [record.message for record in caplog.records if "withheld" in record.message] == [
        "Ticks of ours withheld: the last tick still waits or runs"
    ]
    TickClaim.objects.filter(task_id=published[0].task_id).update(ended_at=Now())
    run_due(beat)
    assert len(published) == 1, "what was missed is not sent"
    pass_time(clock, beat, ticks=1)
    assert len(published) == 2


def test_beat_that_finds_its_tick_sent_by_another_one_withholds_nothing(
    beat: Any, clock: VirtualClock, published: list[Published], settings: Any, caplog: pytest.LogCaptureFixture
):
    reading_worker(settings)
    beats = [beat, *(new_beat(scheduler_on(clock), name=name) for name in "bc")]
    for ticks in (2, 3):
        TickClaim.objects.update(ended_at=Now())
        clock.elapsed += EVERY
        for each in beats:
            run_due(each)
        assert len(published) == ticks
    assert "withheld" not in caplog.text
    for each in beats:
        assert each.schedule["ours"].is_due().next == pytest.approx(EVERY, abs=1)


@pytest.mark.parametrize("misfire", [NONE, ONE])
def test_three_beats_withhold_the_same_tick_and_one_sends_the_next(
    beat: Any, clock: VirtualClock, published: list[Published], settings: Any, misfire: str
):
    reading_worker(settings)
    TickClaim.objects.update(misfire=misfire)
    beats = [new_beat(scheduler_on(clock), name=name) for name in "abc"]
    clock.elapsed += EVERY
    for each in beats:
        run_due(each)
    assert len(published) == 1
    TickClaim.objects.update(ended_at=Now())
    clock.elapsed += EVERY
    for each in reversed(beats):
        run_due(each)
    assert len(published) == 2


def test_paused_night_leaves_one_tick(beat: Any, clock: VirtualClock, published: list[Published], settings: Any):
    reading_worker(settings)
    DesiredState.objects.create(kind="queue", name=queue(settings), aspect="paused", value=1, by="x", since=Now())
    TickClaim.objects.update(claimed_at=timezone.now() - timedelta(hours=10))
    pass_time(clock, beat, ticks=50)
    assert len(published) == 1
    DesiredState.objects.update(value=0, since=Now())
    pass_time(clock, beat, ticks=1)
    assert len(published) == 1, "the worker has not come to the one that waits"
    TickClaim.objects.update(ended_at=Now())
    pass_time(clock, beat, ticks=1)
    assert len(published) == 2


@pytest.mark.parametrize("fields", [None, {"queues": ["antenna"]}, {"seen_at": timezone.now() - timedelta(hours=1)}])
def test_unread_queue_holds_one_tick(
    beat: Any, clock: VirtualClock, published: list[Published], settings: Any, fields: dict[str, Any] | None
):
    if fields is not None:
        reading_worker(settings, **fields)
    TickClaim.objects.update(claimed_at=timezone.now() - timedelta(hours=10), ends=1)
    pass_time(clock, beat)
    assert len(published) == 1


def test_worker_of_an_earlier_version_reads_the_queue_unseen(
    beat: Any, clock: VirtualClock, published: list[Published]
):
    TickClaim.objects.update(claimed_at=timezone.now() - timedelta(hours=10))
    pass_time(clock, beat, ticks=1)
    assert len(published) == 2


def test_tick_whose_end_nobody_saw_counts_as_ended_in_time(
    beat: Any, clock: VirtualClock, published: list[Published], settings: Any
):
    reading_worker(settings)
    TickClaim.objects.update(claimed_at=timezone.now() - timedelta(hours=10))
    pass_time(clock, beat, ticks=1)
    assert len(published) == 2


def purge(settings: Any) -> None:
    with celery_at("objectstore+memory://waiting-ticks"), current_app.connection_for_write() as connection:
        with connection.channel() as channel:
            channel.queue_declare(queue(settings))
        messages.purge(settings.ANTENNA_TOPOLOGY, connection, queue(settings), Operator("a test"))


def test_purge_ends_the_ticks_of_its_queue(beat: Any, clock: VirtualClock, published: list[Published], settings: Any):
    reading_worker(settings)
    task_id = published[0].task_id
    TaskRun.objects.create(task_id=task_id, task=TASK, node="w@a", started_at=timezone.now(), seen_at=timezone.now())
    purge(settings)
    pass_time(clock, beat, ticks=1)
    assert len(published) == 1, "it runs"
    TaskRun.objects.update(ended_at=Now())
    purge(settings)
    pass_time(clock, beat, ticks=1)
    assert len(published) == 2
