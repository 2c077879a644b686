"""Calls that are due later: part of their key, merged into the run of the first that is due, or debounced."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from ami.admission import call_stager, leases, picks, runs
from ami.admission.call_stager import CannotStage
from ami.admission.models import Call, Outcome, Run
from ami.admission.policies import PolicyRefused, Unique
from ami.celery.staged_calls import Next
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def send() -> list[picks.Outgoing]:
    leases.acquire([QUEUE], "me")
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)


def run(task: Any) -> dict[str, Any]:
    """Send the only call that may be sent, run it to its end, and return its arguments."""
    [outgoing] = send()
    begun = runs.begin(task, outgoing.run, "delivery", outgoing.call.task_id)
    assert begun is not None
    assert runs.end(task, begun, None)
    return dict(begun.kwargs)


def come(*task_ids: str) -> None:
    """Let the time of some calls have come."""
    Call.objects.filter(task_id__in=task_ids).update(not_before=timezone.now())


@pytest.mark.parametrize(
    ("task", "shown"),
    [(admitted.dropped, 0), (admitted.once, 4), (admitted.replaced, 4)],
    ids=["drop", "once", "replace"],
)
def test_calls_with_a_countdown_are_one_run_when_the_first_is_due(task: Any, shown: int):
    calls = [task.apply_async((), {"key": "a", "wish": number}, countdown=30 + number) for number in range(5)]
    assert [each.was_duplicate for each in calls] == [False, True, True, True, True]
    assert send() == []
    come(calls[0].id)
    assert run(task)["wish"] == shown
    assert not Call.objects.exists()


def test_call_for_now_takes_those_that_are_due_later():
    first = admitted.dropped.apply_async((), {"key": "a", "wish": 1}, countdown=60)
    second = admitted.dropped.delay(key="a", wish=2)
    assert second.was_duplicate
    assert second.id == first.id
    assert run(admitted.dropped)["wish"] == 1
    assert not Call.objects.exists()


def test_delayed_call_that_comes_during_a_run_is_dropped_or_runs_once_more():
    for task, left in ((admitted.dropped, 0), (admitted.once, 1)):
        task.delay(key="a", wish=1)
        [outgoing] = send()
        begun = runs.begin(task, outgoing.run, "delivery", outgoing.call.task_id)
        assert begun is not None
        assert task.apply_async((), {"key": "a", "wish": 2}, countdown=60).was_duplicate
        assert runs.end(task, begun, None)
        assert Call.objects.filter(task=task.name).count() == left


def test_retry_that_waits_is_not_overtaken_by_a_delayed_call():
    admitted.once.delay(key="a", wish=1)
    [outgoing] = send()
    begun = runs.begin(admitted.once, outgoing.run, "delivery", outgoing.call.task_id)
    assert begun is not None
    assert runs.end(admitted.once, begun, Next(retries=1, due=timezone.now().timestamp() + 60))
    come(admitted.once.apply_async((), {"key": "a", "wish": 2}, countdown=30).id)
    assert send() == []
    Call.objects.filter(retries=1).update(not_before=timezone.now())
    assert run(admitted.once)["wish"] == 2


@pytest.mark.parametrize(
    "when", [{"countdown": 30}, {"eta": timezone.now() + timedelta(hours=1)}], ids=["countdown", "eta"]
)
@pytest.mark.parametrize(
    "task", [admitted.grouped, admitted.together, admitted.debounced], ids=lambda each: each.name[-9:]
)
def test_call_of_a_group_or_a_debounced_task_with_a_time_is_refused(task: Any, when: dict[str, Any]):
    given = {"numbers": [1]} if task is not admitted.debounced else {"wish": 1}
    with pytest.raises(CannotStage, match="without countdown and eta"):
        task.apply_async((), {"key": "a", **given}, **when)
    assert not Call.objects.exists()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[datetime]]:
    """The clock by which calls are staged; it never goes past the database's."""
    found = [timezone.now() - timedelta(hours=1)]
    monkeypatch.setattr(call_stager, "_now", lambda: found[0])
    return found


def click(now: list[datetime], wish: int, after_seconds: float = 0.0) -> Call:
    """Call the debounced task (after 3 s, at most 30), so many seconds after the last click."""
    now[0] += timedelta(seconds=after_seconds)
    return Call.objects.get(task_id=admitted.debounced.delay(key="a", wish=wish).id)


def test_debounced_call_waits_for_a_pause_and_runs_with_the_last_arguments(now: list[datetime]):
    first = click(now, 0)
    assert first.not_before == now[0] + timedelta(seconds=3)
    clicks = [click(now, number, 1) for number in range(1, 5)]
    assert {each.created_at for each in clicks} == {first.created_at}
    assert clicks[-1].not_before == now[0] + timedelta(seconds=3)
    Call.objects.exclude(pk=clicks[-1].pk).update(not_before=timezone.now())
    Call.objects.filter(pk=clicks[-1].pk).update(not_before=timezone.now() + timedelta(seconds=60))
    assert send() == [], "the last one waits for its pause"
    assert Outcome.objects.get(why=Outcome.Why.MERGED).calls == 4
    come(clicks[-1].task_id)
    assert run(admitted.debounced)["wish"] == 4
    assert not Call.objects.exists()


def test_debounced_call_waits_no_longer_than_at_most_after_the_first(now: list[datetime]):
    first = click(now, 0)
    clicks = [click(now, number, 2) for number in range(1, 20)]
    end = first.created_at + timedelta(seconds=30)
    assert max(each.not_before for each in clicks if each.not_before) == end
    assert run(admitted.debounced)["wish"] == 19
    assert click(now, 20, 2).created_at == now[0], "the next one begins anew"


def test_debounced_calls_during_a_run_are_one_more_run(now: list[datetime]):
    click(now, 0)
    [outgoing] = send()
    begun = runs.begin(admitted.debounced, outgoing.run, "delivery", outgoing.call.task_id)
    assert begun is not None
    for number in (1, 2):
        click(now, number, 1)
    assert send() == []
    assert runs.end(admitted.debounced, begun, None)
    assert run(admitted.debounced)["wish"] == 2
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"after": 3}, "replace"),
        ({"after": 3, "on_conflict": "raise"}, "replace"),
        ({"after": -1, "on_conflict": "reschedule_once"}, "above 0"),
        ({"at_most": 30, "on_conflict": "reschedule_once"}, "give after"),
        ({"after": 3, "at_most": 2, "on_conflict": "reschedule_once"}, "less than after"),
        ({"after": True, "on_conflict": "reschedule_once"}, "seconds"),
    ],
)
def test_debounce_that_contradicts_itself_is_refused(options: dict[str, Any], why: str):
    with pytest.raises(PolicyRefused, match=why):
        Unique(by=("key",), **options)
