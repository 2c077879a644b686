"""What the holder of the sampler's lease sends to the database, and what it counts."""

import time
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery import current_app
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.admission.models import Call
from ami.celery.task_times import LENGTH
from ami.queues.models import Lease, Worker
from ami.telemetry import rollups, sampler, totals
from ami.telemetry.broker_figures import BrokerFigures
from ami.telemetry.models import Sample, TaskHistogram

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
QUEUE = "antenna"


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that the test sets; the sampler uses the test's own connection."""
    found = SimpleNamespace(now=1000.0)
    for module in (sampler, rollups):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now, time=time.time))
    monkeypatch.setattr(sampler, "short_connection", nullcontext)
    return found


@pytest.fixture
def one(monkeypatch, clock):
    made = sampler.Sampler()
    figures = BrokerFigures(waiting={QUEUE: 3}, consumers={QUEUE: 1})
    monkeypatch.setattr(made._link, "read", lambda *_, **__: figures)
    return made


def run(one, clock, seconds: int, started: int = 0) -> int:
    """Turn every second; a worker starts so many tasks a second. Return how many statements were sent."""
    with CaptureQueriesContext(connection) as queries:
        for _ in range(seconds):
            clock.now += 1
            if started:
                row = Worker.objects.get()
                counts = row.totals[QUEUE]["a"]
                counts[0] += started
                counts[1] += started
                Worker.objects.update(totals=row.totals)
            one.turn(current_app, "web@a:1")
    sent = [each["sql"] for each in queries if "SAVEPOINT" not in each["sql"] and "BEGIN" not in each["sql"]]
    return len(sent) - (2 * seconds if started else 0)


def worker():
    now = timezone.now()
    totals = {QUEUE: {"a": [0] * LENGTH}}
    times = {"started_at": now, "seen_at": now}
    Worker.objects.create(
        node="antenna@a", host="a", queues=[QUEUE], pid=1, connection_name="a#1", totals=totals, governor={}, **times
    )


def test_holder_sends_at_most_eighteen_statements_a_minute(one, clock):
    worker()
    run(one, clock, 60)
    assert run(one, clock, 300) / 5 <= 18


def test_holder_that_counts_sends_no_more(one, clock):
    worker()
    run(one, clock, 60, started=1)
    assert run(one, clock, 300, started=1) / 5 <= 18
    assert TaskHistogram.objects.exists()


def test_process_without_the_lease_sends_few(one, clock):
    Lease.objects.create(name="sampler", holder="b", until=timezone.now() + timezone.timedelta(hours=1))
    assert run(one, clock, 60) <= 3
    assert not Sample.objects.exists()


def test_first_totals_of_a_new_worker_are_in_the_samples(one, clock):
    run(one, clock, 30)
    worker()
    run(one, clock, 90, started=2)
    counted = sum(Sample.objects.exclude(started=None).values_list("started", flat=True))
    # All until the last read; without the first totals it would be 80.
    assert counted >= 100
    assert totals.CountedTotals.objects.exists()


@pytest.mark.parametrize("has_worker", [True, False])
def test_samples_count_the_calls_that_wait_as_rows(one, clock, monkeypatch, has_worker: bool):
    if has_worker:
        worker()
    now = timezone.now()
    for number, not_before in enumerate((None, now - timedelta(minutes=1), now + timedelta(minutes=1))):
        values = {"arguments": "[[], {}]", "options": "{}", "not_before": not_before}
        Call.objects.create(task_id=str(number), task="a", queue=QUEUE, **values)
    run(one, clock, 5)
    [sample] = [each for each in one._samples if each.name == QUEUE and each.kind == Sample.Kind.QUEUE]
    assert sample.waiting == 3 + 2, "three messages, and two calls that are due"
