"""A run that has begun is charged to its fair key however it ends: no project is served more for failing."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.db.models import Q
from django.utils import timezone

from ami.admission import groups, leases, picks, releases, runs
from ami.admission.models import Call, Run, Share
from ami.admission.policies import policy_of
from ami.celery.staged_calls import Begun, End, Next, Note
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

SECONDS = 40.0


def send(most: int = 99) -> list[picks.Outgoing]:
    leases.acquire([QUEUE], "me")
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", most)


def begun(task: Any, seconds: float = SECONDS) -> Begun:
    """Send the only call of a task and let its run have begun so many seconds ago."""
    [outgoing] = send()
    found = runs.begin(task, outgoing.run, "delivery", outgoing.call.task_id)
    assert found is not None
    Run.objects.filter(pk=found.run).update(began_at=timezone.now() - timedelta(seconds=seconds))
    return found


def used() -> float:
    return float(Share.objects.get(queue=QUEUE).used)


def split(found: Begun) -> None:
    policy = policy_of(admitted.fairly_grouped)
    assert policy is not None
    assert groups.split(admitted.fairly_grouped, policy, found.run, found.delivery)


ENDS = {
    "succeeds": lambda found: runs.end(admitted.fair, found, None),
    "is tried again": lambda found: runs.end(admitted.fair, found, Next(retries=1)),
    "fails": lambda found: runs.settle(current_app, Note(found.run, found.delivery, End.FAILED)),
    "is killed": lambda found: runs.settle(current_app, Note(found.run, found.delivery, End.RETURNED, Next(retries=1))),
    "is revoked": lambda found: runs.settle(current_app, Note(found.run, found.delivery, End.DISCARDED)),
    "is given back": lambda _: runs.give_back(Q(worker="")),
    "is released": lambda _: releases.release(Call.objects.get().task_id),
}


@pytest.mark.parametrize("how", ENDS)
def test_run_is_charged_when_it(how: str):
    admitted.fair.delay(key="a", number=1)
    assert ENDS[how](begun(admitted.fair))
    assert SECONDS - 0.1 < used() < SECONDS + 10
    assert not Run.objects.exists()


def test_run_of_several_calls_is_charged_when_it_is_taken_apart():
    for number in range(2):
        admitted.fairly_grouped.delay(key="a", numbers=[number])
    Call.objects.update(not_before=timezone.now())
    split(begun(admitted.fairly_grouped))
    assert SECONDS - 0.1 < used() < SECONDS + 10


def test_run_whose_end_was_noticed_late_is_charged_its_hard_limit_at_most():
    admitted.fair.delay(key="a", number=1)
    begun(admitted.fair, seconds=86_400)
    runs.give_back(Q(worker=""))
    assert used() == current_app.topology.workload(QUEUE).hard_time_limit_seconds


def test_hard_limit_of_the_call_counts_before_its_queues():
    admitted.fair.apply_async((), {"key": "a", "number": 1}, time_limit=50, soft_time_limit=45)
    begun(admitted.fair, seconds=86_400)
    runs.give_back(Q(worker=""))
    assert used() == 50


def test_weight_counts_for_runs_that_fail():
    admitted.fair.delay(key="a", number=1)
    leases.acquire([QUEUE], "me")
    [fair_key] = Call.objects.values_list("fair_key", flat=True)
    [outgoing] = picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 9, {fair_key: 4})
    assert runs.begin(admitted.fair, outgoing.run, "delivery", outgoing.call.task_id)
    Run.objects.update(began_at=timezone.now() - timedelta(seconds=SECONDS))
    assert runs.settle(current_app, Note(outgoing.run, "delivery", End.FAILED))
    assert SECONDS / 4 - 0.1 < used() < SECONDS / 4 + 3


def test_run_that_has_not_begun_is_not_charged():
    admitted.fair.delay(key="a", number=1)
    [outgoing] = send()
    assert runs.settle(current_app, Note(outgoing.run, "delivery", End.RETURNED))
    assert used() == 0


def test_project_whose_tasks_fail_is_served_no_more_than_one_whose_tasks_succeed():
    for number in range(40):
        for key in ("fails", "succeeds"):
            admitted.fair.delay(key=key, number=number)
    served = Counter[str]()
    for _ in range(40):
        [outgoing] = send(1)
        found = runs.begin(admitted.fair, outgoing.run, "delivery", outgoing.call.task_id)
        assert found is not None
        Run.objects.update(began_at=timezone.now() - timedelta(seconds=1))
        key = "fails" if "fails" in outgoing.call.arguments else "succeeds"
        served[key] += 1
        if key == "fails":
            assert runs.settle(current_app, Note(found.run, found.delivery, End.FAILED))
        else:
            assert runs.end(admitted.fair, found, None)
    assert abs(served["fails"] - served["succeeds"]) <= 2, served
