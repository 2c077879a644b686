"""Calls of one key become one run: when, with which arguments, and what becomes of those that fail."""

import json
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from ami.admission import groups, leases, picks, runs
from ami.admission.call_stager import CannotStage
from ami.admission.models import Call, Run
from ami.admission.policies import GroupBy, policy_of
from ami.celery.staged_calls import Begun, End, Next, Note
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def send() -> list[picks.Outgoing]:
    leases.acquire([QUEUE], "me")
    groups.send_full([QUEUE], picks.staged_tasks(current_app))
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)


def begin(task: Any, outgoing: picks.Outgoing) -> Begun:
    begun = runs.begin(task, outgoing.run, f"d{outgoing.run[:30]}")
    assert begun is not None
    return begun


def call(*numbers: int, key: str = "a", task: Any = admitted.grouped) -> None:
    for number in numbers:
        task.delay(key=key, numbers=[number])


def wait() -> None:
    """Let the time of every group be over."""
    Call.objects.filter(run=None, not_before__isnull=False).update(not_before=timezone.now())


@pytest.mark.parametrize(
    ("merge", "given", "expected"),
    [
        ({"ids": "list"}, [[1, 2], 2, [3]], [1, 2, 2, 3]),
        ({"ids": "set"}, [[1, {"b": 1}], 2, [{"b": 1}, 1]], [1, {"b": 1}, 2]),
        ({"ids": "last"}, [[1], [2]], [2]),
        ({}, [[1], [2]], [2]),
        (lambda calls: {"key": "a", "ids": sum(len(each["ids"]) for each in calls)}, [[1, 2], [3]], 3),
    ],
)
def test_arguments_are_merged_as_declared(merge: Any, given: list[Any], expected: Any):
    group = GroupBy(("key",), 1, merge)
    assert groups.merged(group, [{"key": "a", "ids": each} for each in given]) == {"key": "a", "ids": expected}


def test_group_is_sent_when_the_time_of_its_first_call_is_over():
    call(1, 2)
    call(7, key="b")
    assert Call.objects.exclude(not_before=None).update(not_before=timezone.now() + timedelta(hours=1)) == 3
    assert send() == []
    first = Call.objects.order_by("pk").values_list("pk", flat=True)[0]
    Call.objects.filter(pk=first).update(not_before=timezone.now())
    [outgoing] = send()
    call(3)
    begun = begin(admitted.grouped, outgoing)
    assert begun.kwargs == {"key": "a", "numbers": [1, 2, 3], "seconds": 0.0}
    call(4)
    assert runs.end(admitted.grouped, begun, None)
    assert [json.loads(each.arguments)[1]["numbers"] for each in Call.objects.order_by("pk")] == [[7], [4]]


def test_group_that_is_large_enough_waits_no_longer_and_no_run_takes_more():
    call(1, 2, task=admitted.together)
    Call.objects.update(not_before=timezone.now() + timedelta(hours=1))
    assert send() == []
    call(3, 4, 4, task=admitted.together)
    [outgoing] = send()
    assert begin(admitted.together, outgoing).kwargs == {"key": "a", "numbers": [1, 2, 3]}
    assert Call.objects.filter(run=None).count() == 2


def test_run_takes_as_many_bytes_as_declared(monkeypatch: pytest.MonkeyPatch):
    size = len(json.dumps([[], {"key": "a", "numbers": [1]}]))
    group = GroupBy(("key",), 1, {"numbers": "list"}, most_bytes=2 * size + 1)
    monkeypatch.setattr(admitted.grouped, "group_by", group)
    call(1, 2, 3)
    [outgoing] = send()
    assert begin(admitted.grouped, outgoing).kwargs["numbers"] == [1, 2]


def test_group_that_fails_is_halved_until_the_call_that_fails_stands_alone():
    call(1, 2, -3, 4, 5, 6)
    wait()
    ran: list[list[int]] = []
    policy = policy_of(admitted.grouped)
    assert policy is not None
    for _ in range(20):
        for outgoing in send():
            begun = begin(admitted.grouped, outgoing)
            numbers = begun.kwargs["numbers"]
            ran.append(numbers)
            if min(numbers) > 0:
                assert runs.end(admitted.grouped, begun, None)
            elif not groups.split(admitted.grouped, policy, begun.run, begun.delivery):
                assert numbers == [-3]
                assert json.loads(outgoing.call.arguments)[1]["numbers"] == [-3], "its letter has it alone"
                assert runs.settle(current_app, Note(begun.run, begun.delivery, End.FAILED))
    assert ran == [[1, 2, -3, 4, 5, 6], [1, 2, -3], [1], [2, -3], [2], [-3], [4, 5, 6]]
    assert not Call.objects.exists()
    assert not Run.objects.exists()


def test_calls_that_may_not_run_twice_become_one_letter_with_the_arguments_of_all():
    call(1, -2, 3, task=admitted.together)
    wait()
    [outgoing] = send()
    begun, policy = begin(admitted.together, outgoing), policy_of(admitted.together)
    assert policy is not None
    assert groups.split(admitted.together, policy, begun.run, begun.delivery)
    call(4, task=admitted.together)
    wait()
    [again] = send()
    assert json.loads(again.call.arguments)[1] == {"key": "a", "numbers": [1, -2, 3]}
    begun = begin(admitted.together, again)
    assert begun.kwargs["numbers"] == [1, -2, 3], "a call that came later is not drawn in"
    assert not groups.split(admitted.together, policy, begun.run, begun.delivery)


def test_retry_keeps_the_calls_of_a_group_apart_from_others():
    call(1, 2)
    wait()
    begun = begin(admitted.grouped, send()[0])
    assert runs.end(admitted.grouped, begun, Next(begun.args, begun.kwargs, retries=1))
    assert Call.objects.filter(retries=1).count() == 2
    call(3)
    wait()
    [outgoing] = send()
    assert outgoing.call.retries == 1
    assert begin(admitted.grouped, outgoing).kwargs["numbers"] == [1, 2]


def test_killed_process_lets_the_calls_of_its_group_wait_again():
    call(1, 2)
    wait()
    [outgoing] = send()
    begun = begin(admitted.grouped, outgoing)
    assert runs.settle(current_app, Note(begun.run, begun.delivery, End.RETURNED))
    assert begin(admitted.grouped, send()[0]).kwargs["numbers"] == [1, 2]


def test_process_that_is_killed_before_it_has_begun_lets_the_calls_wait_again():
    call(1, 2)
    wait()
    [outgoing] = send()
    assert runs.settle(current_app, Note(outgoing.run, "delivery", End.RETURNED))
    again = send()[0]
    assert runs.begin(admitted.grouped, outgoing.run, "second delivery") is None, "its message is no longer valid"
    assert begin(admitted.grouped, again).kwargs["numbers"] == [1, 2]
    assert not runs.settle(current_app, Note(again.run, "another", End.RETURNED)), "it has begun by another delivery"


def test_group_whose_process_was_ended_after_the_last_retry_goes_on_in_halves():
    call(1, 2, 3)
    wait()
    begun = begin(admitted.grouped, send()[0])
    assert runs.settle(current_app, Note(begun.run, begun.delivery, End.FAILED))
    assert begin(admitted.grouped, send()[0]).kwargs["numbers"] == [1]


def test_callbacks_of_a_grouped_call_are_refused():
    with pytest.raises(CannotStage, match="is grouped"):
        admitted.grouped.apply_async((), {"key": "a", "numbers": [1]}, link=admitted.sent.s(1))
