"""Calls of one key run in their order: over retries, behind a letter, whatever lane or priority they have."""

import json
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from ami.admission import call_stager, lanes, leases, picks, runs, stopped
from ami.admission.call_stager import CannotStage
from ami.admission.models import Call
from ami.celery.staged_calls import Begun, End, Next, Note
from ami.queues.letters import rows
from ami.queues.models import Letter
from tests.support import dead_letters
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def send() -> list[picks.Outgoing]:
    leases.acquire([QUEUE], "me")
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)


def begin(task: Any, outgoing: picks.Outgoing) -> Begun:
    begun = runs.begin(task, outgoing.run, f"d{outgoing.run[:30]}")
    assert begun is not None
    return begun


def numbers(sent: list[picks.Outgoing]) -> list[tuple[str, int]]:
    given = [json.loads(each.call.arguments)[1] for each in sent]
    return [(each["key"], each["number"]) for each in given]


def test_one_call_of_each_key_is_sent_at_a_time():
    for number in range(3):
        for key in "ab":
            admitted.ordered.delay(key=key, number=number)
    sent = send()
    assert numbers(sent) == [("a", 0), ("b", 0)]
    assert runs.end(admitted.ordered, begin(admitted.ordered, sent[1]), None)
    assert numbers(send()) == [("b", 1)]


def test_retry_that_waits_holds_up_its_key():
    for number in range(2):
        admitted.ordered.delay(key="a", number=number)
    begun = begin(admitted.ordered, send()[0])
    later = timezone.now().timestamp() + 60
    assert runs.end(admitted.ordered, begun, Next(retries=1, due=later))
    assert send() == []
    Call.objects.filter(retries=1).update(not_before=timezone.now())
    assert numbers(send()) == [("a", 0)]


def test_retry_that_begins_to_wait_while_calls_are_picked_holds_up_its_key(monkeypatch: pytest.MonkeyPatch):
    admitted.once.delay(key="a", wish=1)
    begun = begin(admitted.once, send()[0])
    for key in "baab":
        admitted.once.delay(key=key, wish=2)
    read, later = lanes.Lanes.following, timezone.now().timestamp() + 60

    def following(*args: Any) -> list[lanes.Candidate]:
        monkeypatch.setattr(lanes.Lanes, "following", read)
        assert runs.end(admitted.once, begun, Next(retries=1, due=later))
        return read(*args)

    monkeypatch.setattr(lanes.Lanes, "following", following)
    assert [json.loads(each.call.arguments)[1] for each in send()] == [{"key": "b", "wish": 2}]
    assert send() == [], "the other ones wait"


def test_slice_that_goes_on_later_holds_up_its_key():
    for number in range(2):
        admitted.ordered.delay(key="a", number=number)
    begun = begin(admitted.ordered, send()[0])
    assert runs.end(admitted.ordered, begun, Next([], {"key": "a", "number": 0}, due=timezone.now().timestamp() + 60))
    assert send() == []


def test_calls_of_one_key_in_two_queues_keep_their_order():
    admitted.ordered.apply_async((), {"key": "a", "number": 0}, queue="antenna-ingest")
    admitted.ordered.delay(key="a", number=1)
    assert send() == []
    leases.acquire(["antenna-ingest"], "me")
    assert len(picks.pick(picks.staged_tasks(current_app), "antenna-ingest", "me", 9)) == 1


def _letter_of_the_first() -> Call:
    first = admitted.ordered.delay(key="a", number=0).id
    admitted.ordered.delay(key="a", number=1)
    [outgoing] = send()
    begun = begin(admitted.ordered, outgoing)
    assert runs.settle(current_app, Note(begun.run, begun.delivery, End.FAILED))
    assert send() == []
    return Call.objects.get(task_id=first)


def test_replayed_letter_runs_in_its_old_place_with_its_new_arguments():
    call = _letter_of_the_first()
    admitted.ordered.push_request(id=call.task_id, retries=0, headers={}, delivery_info={}, expires=None)
    try:
        call_stager.adopt(admitted.ordered, (), {"key": "a", "number": 100})
    finally:
        admitted.ordered.pop_request()
    assert numbers(send()) == [("a", 100)]
    assert Call.objects.count() == 2


def test_discarded_letter_lets_its_key_go_on():
    assert stopped.give_up([_letter_of_the_first().task_id]) == 1
    assert numbers(send()) == [("a", 1)]


@pytest.mark.parametrize("end", [End.FAILED, End.DISCARDED])
def test_key_goes_on_where_the_task_says_so_and_after_a_cancelled_call(end: End):
    task = admitted.skipping if end is End.FAILED else admitted.ordered
    for number in range(2):
        task.delay(key="a", number=number)
    begun = begin(task, send()[0])
    assert runs.settle(current_app, Note(begun.run, begun.delivery, end))
    assert numbers(send()) == [("a", 1)]


def test_call_with_a_time_is_refused():
    with pytest.raises(CannotStage, match="without countdown and eta"):
        admitted.ordered.apply_async((), {"key": "a", "number": 0}, countdown=3)


def test_higher_priority_is_sent_first_and_keeps_its_order_otherwise():
    for number in range(3):
        admitted.sent.delay(number)
    admitted.sent.apply_async((10,), priority=5)
    admitted.sent.apply_async((11,), priority=9)
    admitted.sent.apply_async((12,), priority=5)
    sent = [json.loads(each.call.arguments)[0][0] for each in send()]
    assert sent == [11, 10, 12, 0, 1, 2]
    with pytest.raises(CannotStage, match="0 \\(normal\\) to 9"):
        admitted.sent.apply_async((1,), priority=10)


def test_keys_are_served_by_their_weights():
    for number in range(40):
        for key in "ab":
            admitted.fair.delay(key=key, number=number)
    leases.acquire([QUEUE], "me")
    sent = picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 40, {'key="a"': 3})
    keys = [key for key, _ in numbers(sent)]
    assert keys.count("a") == 30
    assert keys[:8].count("a") == 6
    [one] = [each for each in sent if each.call.fair_key == 'key="a"'][:1]
    begun = begin(admitted.fair, one)
    assert runs.end(admitted.fair, begun, None)


@pytest.mark.parametrize("forget", [False, True])
def test_key_goes_on_when_its_letter_is_discarded_or_too_old(forget: bool, settings: Any):
    call = _letter_of_the_first()
    row = dead_letters.letter(1)
    Letter.objects.filter(pk=row.pk).update(task_id=call.task_id)
    if forget:
        Letter.objects.update(collected_at=timezone.now() - timedelta(days=settings.ANTENNA_LETTER_DAYS + 1))
        rows.forget_old()
    else:
        rows.discard(Letter.objects.all(), by="ada", why="its images are gone")
    assert numbers(send()) == [("a", 1)]


def test_stopped_call_that_has_expired_still_stops_its_key():
    call = _letter_of_the_first()
    Call.objects.filter(pk=call.pk).update(expires=timezone.now())
    assert send() == []


def test_key_whose_first_call_waits_in_another_queue_lets_other_keys_run():
    admitted.ordered.apply_async((), {"key": "a", "number": 0}, queue="antenna-ingest")
    for number in range(1, 40):
        admitted.ordered.delay(key="a", number=number)
    admitted.ordered.delay(key="b", number=0)
    leases.acquire([QUEUE], "me")
    picked = picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 8)
    assert numbers(picked) == [("b", 0)]


def test_key_whose_first_call_is_of_a_disabled_job_lets_other_keys_run():
    admitted.ordered_of_job.delay(key="a", number=0, job_id=7)
    for number in range(1, 40):
        admitted.ordered_of_job.delay(key="a", number=number, job_id=8)
    admitted.ordered_of_job.delay(key="b", number=0, job_id=8)
    leases.acquire([QUEUE], "me")
    tasks = picks.staged_tasks(current_app)
    assert numbers(picks.pick(tasks, QUEUE, "me", 8, disabled_jobs={"7"})) == [("b", 0)]
    assert numbers(picks.pick(tasks, QUEUE, "me", 8)) == [("a", 0)]


def test_key_whose_first_call_is_of_a_disabled_task_lets_other_tasks_run():
    admitted.skipping.delay(key="a", number=0)
    admitted.ordered.delay(key="a", number=1)
    leases.acquire([QUEUE], "me")
    enabled = {admitted.ordered.name: picks.staged_tasks(current_app)[admitted.ordered.name]}
    assert numbers(picks.pick(enabled, QUEUE, "me", 8)) == [("a", 1)]


def test_unique_key_whose_first_call_is_of_a_disabled_job_runs_its_other_calls():
    for job in (7, 8):
        admitted.once_of_job.delay(key="a", job_id=job)
    leases.acquire([QUEUE], "me")
    [outgoing] = picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 8, disabled_jobs={"7"})
    assert '"job_id": 8' in outgoing.call.arguments
