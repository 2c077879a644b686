"""What the dispatcher costs while there is nothing to do, when it looks again, and who takes over."""

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from ami.admission import dispatcher as module
from ami.admission import leases, outlook
from ami.admission.dispatcher import Dispatcher, Look
from ami.admission.models import Call, DispatcherLease, Run
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The dispatcher's clock; its connection is the test's."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "short_connection", lambda **_: nullcontext())
    return now


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of what was published."""
    seen: list[str] = []

    def publish(_: Any, outgoing: Any) -> list[str]:
        seen.extend(each.call.task_id for each in outgoing)
        return [each.run for each in outgoing]

    monkeypatch.setattr(module.run_publisher, "publish", publish)
    return seen


def look(holder: str = "first") -> Look:
    return Look(current_app, holder)


def statements_of_minutes(made: Look, clock: list[float], minutes: int = 10) -> float:
    """Return how many statements a look sends in a minute if nothing happens."""
    end = clock[0] + 60 * minutes
    with CaptureQueriesContext(connection) as seen:
        while clock[0] < end:
            clock[0] += made.turn(is_woken=False)
    return len(seen) / minutes


def test_idle_dispatcher_sends_a_dozen_statements_a_minute_and_the_others_less(clock: list[float]):
    first, second = look(), look("second")
    first.turn(is_woken=False)
    assert statements_of_minutes(first, clock) <= 13
    DispatcherLease.objects.update(until=Now() + timedelta(hours=1))
    assert statements_of_minutes(second, clock) <= 9


def test_waking_without_a_lease_costs_one_try_in_two_seconds(clock: list[float]):
    leases.acquire(current_app.topology.queues, "first")
    second = look("second")
    second.turn(is_woken=False)
    with CaptureQueriesContext(connection) as seen:
        for _ in range(20):
            clock[0] += 0.1
            second.turn(is_woken=True)
    assert len(seen) <= 2


def test_delayed_call_is_sent_when_it_is_due(clock: list[float], published: list[str]):
    made = look()
    call = admitted.sent.apply_async((1,), countdown=4)
    pause = made.turn(is_woken=True)
    assert 3 < pause <= 4
    Call.objects.update(not_before=Now() - timedelta(milliseconds=1))
    made.turn(is_woken=False)
    assert published == [call.id]


def test_call_that_waits_for_a_permit_is_looked_for_less_and_less_often(clock: list[float], published: list[str]):
    made = look()
    for number in range(3):
        admitted.limited.delay(key="a", number=number)
    made.turn(is_woken=True)
    assert len(published) == 2
    pauses = []
    for _ in range(60):
        pauses.append(made.turn(is_woken=False))
        clock[0] += pauses[-1]
    assert pauses[0] < 0.1
    assert max(pauses[:8]) <= 0.25
    assert pauses[-1] == module.MOST_BLOCKED_SECONDS
    Run.objects.filter(call=Call.objects.earliest("pk").pk).delete()
    Call.objects.earliest("pk").delete()
    made.turn(is_woken=True)
    assert len(published) == 3


def test_paused_queue_costs_no_more_than_an_idle_one(clock: list[float], monkeypatch: pytest.MonkeyPatch):
    held = module.Deployment(paused_queues=frozenset({QUEUE}))
    monkeypatch.setattr(module.deployment, "read", lambda: held)
    made = look()
    admitted.sent.delay(1)
    assert made.turn(is_woken=True) == module.IDLE_SECONDS


def test_leases_of_a_dead_worker_are_free_at_once():
    leases.acquire([QUEUE], "worker#1")
    assert leases.acquire([QUEUE], "other") == set()
    Dispatcher().worker_gone("worker#1")
    assert leases.acquire([QUEUE], "other") == {QUEUE}


def test_outlook_is_one_statement():
    leases.acquire(current_app.topology.queues, "first")
    admitted.sent.delay(1)
    with CaptureQueriesContext(connection) as seen:
        found = outlook.read(current_app.topology.queues)
    assert len(seen) == 1
    assert found == outlook.Outlook(due=(QUEUE,))
