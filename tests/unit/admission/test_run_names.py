"""A message begins and ends the run of its own task and call: a run's id in another message changes nothing."""

from typing import Any

import pytest
from celery import current_app

from ami.admission import leases, picks, runs, settlements
from ami.admission.models import Call, Run
from ami.celery import staged_calls
from ami.celery.staged_calls import Begun, End, Next, Note
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

CALLED = {
    admitted.sent: {"number": 1},
    admitted.once: {"key": "a", "wish": 1},
    admitted.grouped: {"key": "a", "numbers": [1]},
    admitted.ordered: {"key": "a", "number": 1},
}


@pytest.fixture(params=CALLED, ids=lambda task: task.name.rpartition(".")[2])
def sent(request: Any) -> tuple[Any, picks.Outgoing]:
    """A task and its call, which was sent."""
    task = request.param
    task.delay(**CALLED[task])
    Call.objects.update(not_before=None)
    leases.acquire([QUEUE], "me")
    [outgoing] = picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 9)
    return task, outgoing


def test_run_is_begun_by_the_message_of_its_task_and_call_alone(sent: tuple[Any, picks.Outgoing]):
    task, outgoing = sent
    task_id = outgoing.call.task_id
    assert runs.begin(task, outgoing.run, "delivery", "another id") is None
    for other in CALLED.keys() - {task}:
        assert runs.begin(other, outgoing.run, "delivery", task_id) is None
    assert Run.objects.get().state == Run.State.SENT
    assert isinstance(runs.begin(task, outgoing.run, "delivery", task_id), Begun)


@pytest.mark.parametrize("end", End)
def test_run_is_ended_by_a_note_of_its_task_and_call_alone(sent: tuple[Any, picks.Outgoing], end: End):
    task, outgoing = sent
    begun = runs.begin(task, outgoing.run, "delivery", outgoing.call.task_id)
    assert begun is not None
    own = {"task": task.name, "task_id": outgoing.call.task_id}
    following = Next(retries=1) if end is End.RETURNED else None
    for named in ({"task": "another"}, {"task_id": "another"}, {"task": "None", "task_id": "None"}):
        assert not runs.settle(current_app, Note(begun.run, "delivery", end, following, **own | named)), named
        assert Call.objects.filter(run=begun.run).exists()
    assert runs.settle(current_app, Note(begun.run, "delivery", end, following, **own))


def test_malformed_message_that_names_a_run_ends_it_only_as_its_own(sent: tuple[Any, picks.Outgoing]):
    task, outgoing = sent
    staged_calls.note(Note(outgoing.run, "", End.FAILED, task=task.name, task_id="another"))
    assert settlements.write(current_app)
    assert Run.objects.filter(pk=outgoing.run).exists()
