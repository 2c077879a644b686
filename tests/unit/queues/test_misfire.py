"""What becomes of late ticks: an entry's policy, changed by an operator and followed by beat."""

import io
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.queues import schedule_operations, waiting_ticks
from ami.queues.models import AuditEntry, TickClaim
from ami.queues.refusals import Refused
from ami.queues.schedule import MARK
from ami.queues.wishes import Operator
from tests.support.beat_simulation import VirtualClaims, VirtualClock, connected, scheduler_on
from tests.support.beats import Published, new_beat, publishes, run_due

TASK = "ami.jobs.tasks.audit_data_integrity"
EVERY = 600
ADA = Operator("ada", "test")

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(timezone.now())


@pytest.fixture
def published(clock: VirtualClock) -> Iterator[list[Published]]:
    with publishes() as collected, connected(VirtualClaims(clock)):
        yield collected


@pytest.fixture
def entry(clock: VirtualClock) -> Callable[..., PeriodicTask]:
    def make(misfire: str, **fields: Any) -> PeriodicTask:
        interval, _ = IntervalSchedule.objects.get_or_create(every=EVERY, period="seconds")
        values = {"name": "ours", "task": TASK, "interval": interval, "last_run_at": clock.now(), "expire_seconds": 300}
        made = PeriodicTask.objects.create(**{**values, **fields})
        TickClaim.objects.create(entry=made)
        schedule_operations.set_misfire("ours", ADA, misfire)
        return made

    return make


@pytest.mark.parametrize(("misfire", "expected"), [("none", 1), ("one", 1), ("all", 5)])
def test_ticks_that_no_beat_sent_are_made_up_by_the_policy(
    clock: VirtualClock, published: list[Published], entry: Callable[..., PeriodicTask], misfire: str, expected: int
):
    entry(misfire)
    clock.elapsed += 5 * EVERY + 1
    run_due(new_beat(scheduler_on(clock)))
    assert len({each.task_id for each in published}) == expected


@pytest.mark.parametrize(("misfire", "sent"), [("none", [1, 1, 1]), ("one", [1, 1, 2]), ("all", [1, 2, 2])])
def test_tick_that_is_due_while_the_last_one_runs(
    clock: VirtualClock,
    published: list[Published],
    entry: Callable[..., PeriodicTask],
    monkeypatch: pytest.MonkeyPatch,
    misfire: str,
    sent: list[int],
):
    entry(misfire)
    beat = new_beat(scheduler_on(clock))
    clock.elapsed += EVERY + 1
    run_due(beat)
    counts = [len(published)]
    monkeypatch.setattr(waiting_ticks, "why_withheld", lambda _: "the last tick still waits or runs")
    clock.elapsed += EVERY
    run_due(beat)
    counts.append(len(published))
    monkeypatch.setattr(waiting_ticks, "why_withheld", lambda _: "")
    clock.elapsed += 10  # It has ended.
    run_due(beat)
    counts.append(len(published))
    assert counts == sent


@pytest.mark.parametrize(("misfire", "expires"), [("none", True), ("one", False), ("all", False)])
def test_message_expires_only_where_no_late_tick_is_made_up(
    clock: VirtualClock, entry: Callable[..., PeriodicTask], misfire: str, expires: bool
):
    from celery.signals import before_task_publish

    entry(misfire)
    seen: list[Any] = []

    def see(headers: dict[str, Any] | None = None, **_: Any) -> None:
        seen.append((headers or {}).get("expires"))

    with publishes():
        before_task_publish.connect(see)
        clock.elapsed += EVERY + 1
        run_due(new_beat(scheduler_on(clock)))
        before_task_publish.disconnect(see)
    assert [bool(each) for each in seen] == [expires]


def test_first_tick_of_all_is_at_the_start_time_and_not_decades_before(
    clock: VirtualClock, published: list[Published], entry: Callable[..., PeriodicTask]
):
    entry("all", last_run_at=None, start_time=clock.now() + timedelta(seconds=30))
    beat = new_beat(scheduler_on(clock))
    clock.elapsed += 20
    run_due(beat)
    assert published == []
    clock.elapsed += 20 + EVERY
    run_due(beat)
    assert len(published) == 2
    due = TickClaim.objects.get().claimed_at
    assert due is not None
    assert abs((due - PeriodicTask.objects.get(name="ours").start_time).total_seconds() - EVERY) < 1


def test_command_changes_the_policy_and_says_what_it_was(entry: Callable[..., PeriodicTask]):
    entry("none")
    out = io.StringIO()
    call_command("queues", "misfire", "ours", "all", "--why", "a report a day", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"entry": "ours", "before": "none", "misfire": "all"}
    logged = AuditEntry.objects.filter(verb="misfire").latest("pk")
    assert (logged.why, logged.after) == ("a report a day", {"misfire": "all"})


@pytest.mark.parametrize(
    ("name", "misfire", "why"),
    [
        ("nothing", "all", "no entry 'nothing'"),
        ("ours", "each", "'each' is no policy"),
        ("coded", "all", "declared in code"),
    ],
)
def test_policy_that_cannot_be_set_is_refused(entry: Callable[..., PeriodicTask], name: str, misfire: str, why: str):
    made = entry("none")
    PeriodicTask.objects.create(name="coded", task=TASK, interval=made.interval, description=MARK)
    with pytest.raises(Refused, match=why):
        schedule_operations.set_misfire(name, ADA, misfire)
    assert set(TickClaim.objects.values_list("misfire", flat=True)) == {"none"}
