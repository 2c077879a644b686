"""What became of calls that did not run as themselves is counted, by task, hour and why."""

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from django.core.management import call_command
from django.utils import timezone

from ami.admission import leases, outcomes, picks, runs
from ami.admission.models import Call, Outcome, RecentKey
from ami.celery.staged_calls import End, Next, Note
from ami.queues import call_operations
from ami.queues.wishes import Operator
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
Why = Outcome.Why


def counted() -> dict[tuple[str, str], int]:
    return {(row.task, row.why): row.calls for row in Outcome.objects.all()}


def send() -> list[picks.Outgoing]:
    leases.acquire([QUEUE], "me")
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)


def begin(task: Any) -> Any:
    [sent] = send()
    begun = runs.begin(task, sent.run, "delivery")
    assert begun is not None
    return begun


def test_merged_calls_are_counted_once_whatever_becomes_of_their_run():
    for wish in range(4):
        admitted.once.delay(key="a", wish=wish)
    begun = begin(admitted.once)
    assert runs.settle(current_app, Note(begun.run, "delivery", End.RETURNED, Next(retries=1)))
    assert runs.end(admitted.once, begin(admitted.once), None)
    assert counted() == {(admitted.once.name, Why.MERGED): 3}
    admitted.once.delay(key="a", wish=5)
    runs.end(admitted.once, begin(admitted.once), None)
    assert counted() == {(admitted.once.name, Why.MERGED): 3}, "a call alone is merged with nothing"


def test_compacted_calls_are_merged():
    for number in range(5):
        admitted.grouped.delay(key="a", numbers=[number])
    call_operations.compact(admitted.grouped.name, Operator("ada"))
    assert counted() == {(admitted.grouped.name, Why.MERGED): 4}


def test_call_that_comes_while_one_runs_is_counted_as_dropped():
    admitted.dropped.delay(key="a", wish=1)
    begun = begin(admitted.dropped)
    for _ in range(2):
        admitted.dropped.delay(key="a", wish=1)
    assert runs.end(admitted.dropped, begun, None)
    assert counted() == {(admitted.dropped.name, Why.RAN): 2}


def test_call_that_comes_too_soon_or_too_late_is_counted():
    admitted.seldom.delay(key="a", wish=1)
    RecentKey.objects.create(key=Call.objects.get().key, until=timezone.now() + timedelta(minutes=1))
    admitted.limited.apply_async(kwargs={"key": "a", "number": 1}, expires=60)
    Call.objects.exclude(expires=None).update(expires=timezone.now() - timedelta(seconds=1))
    assert send() == []
    assert counted() == {(admitted.seldom.name, Why.RAN_LATELY): 1, (admitted.limited.name, Why.EXPIRED): 1}


def test_operators_see_the_hours_that_they_ask_for_the_most_first():
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for ago, task, calls in ((0, "a", 2), (1, "a", 3), (1, "b", 7), (30, "a", 100), (24 * 31, "a", 1)):
        Outcome.objects.create(task=task, why=Why.MERGED, hour=hour - timedelta(hours=ago), calls=calls)
    out = io.StringIO()
    call_command("queues", "dropped", "--json", stdout=out)
    found = [(row["task"], row["calls"], row["last_hour"]) for row in json.loads(out.getvalue())]
    assert found == [("b", 7, (hour - timedelta(hours=1)).isoformat()), ("a", 5, hour.isoformat())]
    assert [each.calls for each in outcomes.counted(720, task="a")] == [105]
    outcomes.forget()
    assert Outcome.objects.count() == 4
