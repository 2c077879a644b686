"""What is missing right after a start is on its way: pages and the check say so, and it is no error."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.queues import diagnostics, startup
from ami.queues.models import Beat, Lease, Worker
from tests.support.brokers import celery_at

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
LONG, NOW = timedelta(hours=1), timedelta()


def worker(node: str, age: timedelta, seen: timedelta = NOW) -> None:
    now = timezone.now()
    Worker.objects.create(node=node, host="a", pid=1, started_at=now - age, seen_at=now - seen)


def beat(age: timedelta, seen: timedelta = NOW) -> None:
    Beat.objects.create(name="a:1", started_at=timezone.now() - age, seen_at=timezone.now() - seen)


def test_start_is_noted_for_a_while(django_assert_num_queries: Any):
    with django_assert_num_queries(1):
        assert not startup.is_starting()  # Freshly migrated, and nothing was started.
    startup.begin()
    assert startup.is_starting()
    Lease.objects.update(until=timezone.now() - timedelta(seconds=1))
    assert not startup.is_starting()


def test_web_process_beside_living_ones_notes_no_start():
    worker("old@a", LONG)
    startup.begin_unless_running()
    assert not startup.is_starting()
    Worker.objects.update(seen_at=timezone.now() - LONG)  # Killed with its host.
    beat(LONG)
    startup.begin_unless_running()
    assert not startup.is_starting()
    Beat.objects.all().delete()
    startup.begin_unless_running()
    assert startup.is_starting()


@pytest.fixture
def broker(settings: Any):
    with celery_at("memory://starting") as app:
        yield app


def test_findings_of_a_start_are_no_errors(broker: Any, settings: Any):
    interval = IntervalSchedule.objects.create(every=60, period="seconds")
    PeriodicTask.objects.create(name="ours", task="ami.main.tasks.purge_old_rows", interval=interval)

    def levels() -> dict[str, str]:
        return {each.name: each.level for each in diagnostics.without_broker(settings.ANTENNA_TOPOLOGY)}

    assert levels()["no-beat"] == "error"
    startup.begin()
    (found,) = (each for each in diagnostics.without_broker(settings.ANTENNA_TOPOLOGY) if each.name == "no-beat")
    assert (found.level, found.sentence[:20]) == ("starting", "Starting: No beat ru")
    Lease.objects.all().delete()
    assert levels()["no-beat"] == "error"
