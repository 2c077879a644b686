"""The snapshot: what is wrong with a queue that RabbitMQ says little about."""

from datetime import timedelta

import pytest
from celery import current_app
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.celery.task_times import LENGTH
from ami.queues.models import DesiredState, Worker
from ami.telemetry.broker_figures import BrokerFigures
from ami.telemetry.models import CountedTotals, Sample
from ami.telemetry.snapshots import live
from ami.telemetry.snapshots.shape import as_json, from_json

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
QUEUE = "antenna"


@pytest.fixture
def waiting(monkeypatch):
    """Let so many messages wait in the queue, as RabbitMQ says it: without their age."""

    def set_waiting(count: int) -> None:
        figures = BrokerFigures(waiting={QUEUE: count}, consumers={QUEUE: 1})
        monkeypatch.setattr(live.link, "read", lambda *_, **__: figures)

    return set_waiting


def of_queue():
    snapshot = live.take(current_app, settings.ANTENNA_TOPOLOGY, 3)
    assert from_json(as_json(snapshot)) == snapshot
    return next(each for each in snapshot.queues if each.queue == QUEUE)


def sample(seconds_ago: float, **figures):
    at = timezone.now() - timedelta(seconds=seconds_ago)
    Sample.objects.create(kind="queue", name=QUEUE, resolution=5, at=at, **figures)


def worker(totals=None):
    now = timezone.now()
    times = {"started_at": now, "seen_at": now}
    return Worker.objects.create(
        node="antenna@a", host="a", queues=[QUEUE], pid=1, connection_name="a#1", totals=totals, **times
    )


def test_messages_that_nobody_starts_break_the_promise(waiting):
    waiting(5)
    sample(100, waiting=5, started=0)
    sample(30, waiting=5, started=0)
    found = of_queue()
    assert (found.promise, found.oldest_is_bound, found.oldest_seconds) == ("broken", True, None)


def test_messages_that_were_started_since_do_not(waiting):
    waiting(5)
    sample(100, waiting=5, started=0)
    sample(30, waiting=5, started=50)
    found = of_queue()
    assert found.promise == "unknown"
    assert found.oldest_seconds == pytest.approx(100, abs=5)


def test_waits_that_are_not_counted_yet_are_shown(waiting):
    waiting(0)
    late = [3, 3, 0, 0, 900.0, 0.1, *([0] * (LENGTH - 6))]
    late[6 + 14] = 3
    worker({QUEUE: {"a": late}})
    assert of_queue().promise == "broken"
    CountedTotals.objects.create(connection_name="a#1", totals={QUEUE: {"a": late}}, counted_at=timezone.now())
    assert of_queue().promise == "unknown"


def test_paused_queue_says_who_and_why(waiting):
    waiting(2)
    since = timezone.now()
    DesiredState.objects.create(
        kind="queue", name=QUEUE, aspect="paused", value=1, by="ada", why="disk", since=since, until=None
    )
    found = of_queue()
    assert (found.promise, found.paused.by, found.paused.why) == ("broken", "ada", "disk")


def test_snapshot_is_a_dozen_statements_at_most(waiting):
    waiting(2)
    worker({QUEUE: {"a": [0] * LENGTH}})
    with CaptureQueriesContext(connection) as queries:
        of_queue()
    assert len(queries) <= 12
