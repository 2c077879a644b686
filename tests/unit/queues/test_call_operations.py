"""Operators merge waiting calls, see what holds a key, and take it away."""

import io
import json
from typing import Any

import pytest
from celery import current_app
from django.core.management import CommandError, call_command

from ami.admission import leases, picks, runs
from ami.admission.models import Call, Run
from ami.celery.staged_calls import End, Note
from ami.queues import call_operations
from ami.queues.models import AuditEntry, DesiredState
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
ADA = Operator("ada")


def command(*argv: Any) -> Any:
    out = io.StringIO()
    call_command("queues", *argv, "--json", stdout=out)
    return json.loads(out.getvalue())


def send() -> list[picks.Outgoing]:
    leases.acquire([QUEUE], "me")
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)


def test_waiting_calls_of_a_key_become_one():
    for number in range(250):
        admitted.grouped.delay(key="ab"[number % 2], numbers=[number])
    for wish in range(3):
        admitted.once.delay(key="a", wish=wish)
    found = command("compact", admitted.grouped.name, "--why", "too many rows")
    assert (found["before"], found["after"]) == (250, 2)
    given = [json.loads(each.arguments) for each in Call.objects.filter(task=admitted.grouped.name).order_by("pk")]
    assert [kwargs["numbers"] for _, kwargs in given] == [list(range(0, 250, 2)), list(range(1, 250, 2))]
    call_operations.compact(admitted.once.name, ADA)
    [kept] = Call.objects.filter(task=admitted.once.name)
    assert json.loads(kept.arguments)[1]["wish"] == 2
    entry = AuditEntry.objects.get(target=admitted.grouped.name)
    assert (entry.verb, entry.outcome, entry.why) == ("compact", "250 calls became 2", "too many rows")


def test_compacting_keeps_to_what_a_run_may_take():
    for number in range(7):
        admitted.together.delay(key="a", numbers=[number])
    assert call_operations.compact(admitted.together.name, ADA).after == 3


def test_task_that_merges_nothing_is_refused():
    with pytest.raises(Refused, match="is not a task that merges calls.*grouped"):
        call_operations.compact(admitted.limited.name, ADA)
    with pytest.raises(CommandError):
        command("compact", "no.such.task")


@pytest.mark.parametrize("drop", [False, True])
def test_run_that_does_not_end_is_taken_away(drop: bool):
    first = admitted.once.delay(key="a", wish=1).id
    [sent] = send()
    begun = runs.begin(admitted.once, sent.run, "delivery")
    assert begun is not None
    admitted.once.delay(key="a", wish=2)
    assert send() == []
    [holder] = command("staged", "--calls")
    assert (holder["task_id"], holder["state"], holder["key"], holder["calls"]) == (first, "running", '{"key":"a"}', 1)
    found = command("release", first, *(["--drop"] if drop else []))
    assert (found["was"], found["calls"], found["is_dropped"]) == ("running", 1, drop)
    assert not runs.end(admitted.once, begun, None), "its process ends in vain"
    assert len(send()) == 1
    assert Call.objects.count() == (1 if drop else 2)


def test_key_goes_on_without_the_letter_that_stopped_it():
    first = admitted.ordered.delay(key="a", number=1).id
    admitted.ordered.delay(key="a", number=2)
    [sent] = send()
    assert runs.begin(admitted.ordered, sent.run, "delivery")
    assert runs.settle(current_app, Note(sent.run, "delivery", End.FAILED))
    assert send() == []
    [lane] = command("staged")
    assert (lane["stopped"], lane["waiting"]) == (1, 2)
    assert lane["why"] == "for a dead letter, the first of its key: replay, discard or release it"
    [holder] = command("staged", "--calls")
    assert (holder["task_id"], holder["state"]) == (first, "stopped")
    assert command("release", first, "--why", "its images are gone")["was"] == "stopped"
    assert [json.loads(each.call.arguments)[1]["number"] for each in send()] == [2]
    assert AuditEntry.objects.get(verb="release").outcome == "was stopped, 1 calls deleted"


def test_what_holds_nothing_is_not_released():
    with pytest.raises(Refused, match="No call that is a row"):
        call_operations.release("unknown", ADA)
    waiting = admitted.once.delay(key="a", wish=1).id
    with pytest.raises(Refused, match="waits and holds nothing"):
        call_operations.release(waiting, ADA)
    assert call_operations.release(waiting, ADA, drop=True).calls == 1
    assert not Run.objects.exists()


def test_cancelling_a_call_that_stops_its_key_points_to_release():
    first = admitted.ordered.delay(key="a", number=1).id
    second = admitted.ordered.delay(key="a", number=2).id
    [sent] = send()
    assert runs.begin(admitted.ordered, sent.run, "delivery")
    assert runs.settle(current_app, Note(sent.run, "delivery", End.FAILED))
    with pytest.raises(CommandError, match=f"queues release {first}"):
        command("cancel", first, "--why", "no more")
    assert not DesiredState.objects.exists(), "nothing is asked for"
    assert command("cancel", second)["task_id"] == second
