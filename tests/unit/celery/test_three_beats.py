"""Claims of ticks: three beats on one database, beats that are killed, entries that change."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, IntervalSchedule, PeriodicTask, PeriodicTasks
from kombu import Producer
from kombu.exceptions import OperationalError

from ami.celery.claimed_ticks import LOOK_SECONDS, PATIENCE_SECONDS, RETRY_SECONDS
from ami.queues.models import Beat, TickClaim
from ami.queues.ticks import DatabaseTickClaims
from tests.support.beat_simulation import Killed, KillsOnce, VirtualClaims, VirtualClock, connected, scheduler_on
from tests.support.beats import Published, new_beat, publishes, run_due

TASK = "ami.jobs.tasks.audit_data_integrity"
EVERY = 600

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
    values = {"name": "ours", "task": TASK, "interval": interval, "last_run_at": clock.now() - timedelta(hours=1)}
    return PeriodicTask.objects.create(**{**values, **fields})


def change(**fields: Any) -> None:
    """Change the entry as the admin's actions do."""
    PeriodicTask.objects.filter(task=TASK).update(**fields)
    PeriodicTasks.update_changed()


def test_tick_that_is_due_in_three_beats_is_sent_once(clock: VirtualClock, beat: NewBeat, published: list[Published]):
    entry(clock)
    for each in [beat(name) for name in "abc"]:
        run_due(each)
    assert [each.entry for each in published] == ["ours"]
    assert {row.name for row in Beat.objects.all()} == {"a", "b", "c"}


def test_beat_that_lost_a_tick_follows_the_winners_phase(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    entry(clock)
    first, second, third = beat("a"), beat("b"), beat("c")
    run_due(first)
    clock.elapsed += 100
    for beat_ in (second, third):
        run_due(beat_)
    for beat_ in (first, second, third):
        assert beat_.schedule["ours"].is_due().next == pytest.approx(EVERY - 100)
    clock.elapsed += EVERY - 100
    for beat_ in (second, third, first):
        run_due(beat_)
    assert len(published) == 2
    assert TickClaim.objects.get(entry__task=TASK).claimed_by == "b"


@pytest.mark.parametrize(("place", "messages"), [("claimed", 1), ("published", 2)])
def test_tick_of_a_killed_beat_goes_out_again_with_its_task_id(
    clock: VirtualClock, beat: NewBeat, published: list[Published], place: str, messages: int
):
    entry(clock)
    with connected(KillsOnce(place, clock)):
        killed, other, third = beat("killed"), beat("other"), beat("third")
        with pytest.raises(Killed):
            run_due(killed)
        for each in (other, third):
            run_due(each)
        assert len(published) == messages - 1
        clock.elapsed += PATIENCE_SECONDS
        for each in (other, third):
            run_due(each)
    claim = TickClaim.objects.get(entry__task=TASK)
    assert [each.task_id for each in published] == [claim.task_id] * messages
    assert (claim.is_sent, claim.repeats, claim.claimed_by) == (True, 1, "other")


def test_tick_that_the_broker_refused_is_sent_again_soon_by_the_same_beat(
    clock: VirtualClock, beat: NewBeat, published: list[Published], monkeypatch: pytest.MonkeyPatch
):
    entry(clock)
    running = beat("a")
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "_publish", lambda *_, **__: (_ for _ in ()).throw(OperationalError("no broker")))
        run_due(running)
    assert published == []
    clock.elapsed += RETRY_SECONDS
    run_due(running)
    assert [each.task_id for each in published] == [TickClaim.objects.get(entry__task=TASK).task_id]


def test_entry_of_the_applications_configuration_is_sent_once(
    clock: VirtualClock, beat: NewBeat, published: list[Published], app: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(app.conf, "beat_schedule", {"ours": {"task": TASK, "schedule": float(EVERY)}})
    beats = beat("a"), beat("b"), beat("c")
    clock.elapsed += EVERY + 10
    for each in beats:
        run_due(each)
    clock.elapsed += 2
    for each in beats:
        run_due(each)
    assert [each.entry for each in published] == ["ours"]


@contextmanager
def without_claims_table() -> Iterator[None]:
    with connection.schema_editor() as editor:
        editor.alter_db_table(TickClaim, "queues_tickclaim", "away")
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(TickClaim, "away", "queues_tickclaim")


def test_nothing_is_sent_without_the_database_and_each_entry_once_afterwards(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    entry(clock)
    running = beat("a")
    run_due(running)
    with without_claims_table():
        for _ in range(10):
            clock.elapsed += EVERY
            run_due(running)
        assert len(published) == 1
    clock.elapsed += RETRY_SECONDS
    run_due(running)
    assert len(published) == 2


def test_schedule_stays_while_the_database_cannot_be_read(clock: VirtualClock, beat: NewBeat):
    entry(clock)
    running = beat("a")
    run_due(running)
    with without_claims_table():
        change(priority=1)
        run_due(running)
        assert "ours" in running.schedule
    run_due(running)
    assert running.schedule["ours"].options["priority"] == 1


def test_entry_that_was_disabled_while_claimed_is_not_sent_and_runs_once_enabled(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    entry(clock)
    with connected(KillsOnce("claimed", clock)):
        with pytest.raises(Killed):
            run_due(beat("killed"))
        change(enabled=False, last_run_at=None)
        running = beat("other")
        for _ in range(10):
            run_due(running)
            clock.elapsed += LOOK_SECONDS
        assert published == []
        lost = TickClaim.objects.get(entry__task=TASK).task_id
        change(enabled=True)
        clock.elapsed += EVERY
        run_due(running)
    assert len(published) == 1
    assert published[0].task_id != lost


def test_entry_that_was_edited_while_claimed_goes_out_as_edited(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    entry(clock)
    with connected(KillsOnce("claimed", clock)):
        with pytest.raises(Killed):
            run_due(beat("killed"))
        change(name="edited")
        running = beat("other")
        run_due(running)
        clock.elapsed += PATIENCE_SECONDS
        run_due(running)
    assert [each.entry for each in published] == ["edited"]


def test_entry_that_was_deleted_while_claimed_is_forgotten(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    row = entry(clock)
    running = beat("other")
    run_due(running)
    row.delete()
    clock.elapsed += EVERY
    for _ in range(2):
        assert running.is_due(running.old_schedulers["ours"]).is_due is False
    run_due(running)
    assert "ours" not in running.schedule
    assert len(published) == 1


@pytest.mark.parametrize("clocked", [False, True])
def test_one_off_entry_runs_once_in_three_beats_and_again_when_enabled(
    clock: VirtualClock, beat: NewBeat, published: list[Published], clocked: bool
):
    due = {}
    if clocked:
        due = {"interval": None, "clocked": ClockedSchedule.objects.create(clocked_time=clock.now())}
    entry(clock, one_off=True, last_run_at=None, **due)
    PeriodicTask.objects.update(date_changed=clock.now() - timedelta(hours=1))
    beats = beat("a"), beat("b"), beat("c")

    def run() -> None:
        for _ in range(3):
            for each in beats:
                run_due(each)
            clock.elapsed += EVERY + 1

    run()
    assert len(published) == 1
    assert PeriodicTask.objects.get(name="ours").enabled is False
    change(enabled=True)
    run()
    assert len(published) == 2


def test_entry_starts_at_its_start_time_and_ends_at_its_expiry(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    start, end = clock.now() + timedelta(seconds=EVERY), clock.now() + timedelta(seconds=3.5 * EVERY)
    entry(clock, start_time=start, expires=end, last_run_at=None)
    beats = beat("a"), beat("b"), beat("c")
    for _ in range(60):
        for each in beats:
            run_due(each)
        clock.elapsed += EVERY / 10
    assert len(published) == 3
    assert PeriodicTask.objects.get(name="ours").enabled is False


def test_beat_of_an_application_without_claims_sends_what_is_due(
    clock: VirtualClock, beat: NewBeat, published: list[Published]
):
    entry(clock)
    with connected(None):
        running = beat("a")
        run_due(running)
        clock.elapsed += EVERY
        run_due(running)
    assert [each.entry for each in published] == ["ours"] * 2
    assert not Beat.objects.exists()


def test_tick_costs_four_statements_and_an_idle_one_none(clock: VirtualClock, beat: NewBeat):
    def statements(seconds: float) -> int:
        clock.elapsed += seconds
        with CaptureQueriesContext(
            connection,
        ) as captured:
            run_due(running)
        return len(captured)

    entry(clock)
    costs = {}
    for name, claims in {"without": None, "with": DatabaseTickClaims()}.items():
        with connected(claims):
            running = beat("a")
            run_due(running)
            running._last_sync = float("inf")  # Beat writes its last runs every three minutes: not now.
            statements(LOOK_SECONDS)
            costs[name] = (statements(1), statements(LOOK_SECONDS), statements(EVERY))
    idle, look, tick = (after - before for before, after in zip(costs["without"], costs["with"], strict=True))
    assert (idle, look, tick - look) == (0, 2, 4)


def test_beat_that_ends_in_order_is_not_shown_as_running(clock: VirtualClock, beat: NewBeat):
    running = beat("a")
    run_due(running)
    assert Beat.objects.exists()
    running.close()
    assert not Beat.objects.exists()
