"""Calls that do not get to the broker are an error; those that wait for a reason are none."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models.functions import Now

from ami.admission import run_publisher
from ami.admission.models import Call, DispatcherLease, Run
from ami.queues import diagnostics
from ami.queues.models import DesiredState
from ami.telemetry.alerts import rules

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
QUEUE, TASK = "antenna", "tests.support.worker_tasks.admitted.sent"


def found() -> list[Any]:
    every = diagnostics.without_broker(settings.ANTENNA_TOPOLOGY)
    return [each for each in every if each.name == "calls-unsent"]


def ago(seconds: float) -> Any:
    return Now() - timedelta(seconds=seconds)


def lease(seconds_left: float) -> None:
    DispatcherLease.objects.create(queue=QUEUE, holder="first#1", until=ago(-seconds_left))


def call(**fields: Any) -> None:
    number = Call.objects.count()
    defaults = {"task_id": f"id-{number}", "task": TASK, "queue": QUEUE, "arguments": "[[], {}]", "options": "{}"}
    Call.objects.create(**{**defaults, "created_at": ago(40), **fields})


def run(**fields: Any) -> None:
    defaults = {"pk": f"run-{Run.objects.count()}", "call": 1, "task": TASK, "queue": QUEUE, "send_again_at": ago(-5)}
    Run.objects.create(**{**defaults, "sent_at": ago(40), **fields})


def test_run_that_the_broker_has_not_confirmed_for_long_is_an_error():
    for _ in range(2):
        run()
    (finding,) = found()
    assert (finding.level, finding.target) == ("error", QUEUE)
    assert "the broker has not confirmed 2 calls that were sent, for 40 s" in finding.sentence


@pytest.mark.parametrize(
    "fields",
    [{"sent_at": ago(20)}, {"confirmed_at": ago(39)}, {"state": Run.State.RUNNING}],
    ids=["lately", "confirmed", "running"],
)
def test_run_that_was_sent_lately_or_has_arrived_is_well(fields: dict[str, Any]):
    run(**fields)
    assert found() == []


@pytest.mark.parametrize(("confirmed_at", "errors"), [(ago(30), 0), (None, 1)], ids=["confirmed", "never confirmed"])
def test_run_that_is_sent_again_is_unconfirmed_from_then_on(confirmed_at: Any, errors: int):
    call(run="run-0")
    run(call=Call.objects.get().pk, confirmed_at=confirmed_at, send_again_at=ago(1))
    assert len(run_publisher.unseen(QUEUE)) == 1
    assert len(found()) == errors


@pytest.mark.parametrize("left", [None, -31], ids=["never dispatched", "its dispatcher died"])
def test_due_calls_without_a_dispatcher_are_an_error(left: float | None):
    if left is not None:
        lease(left)
    call()
    call(not_before=ago(35), created_at=ago(4000))
    (finding,) = found()
    assert (finding.level, finding.target) == ("error", QUEUE)
    assert "no worker dispatches it, and 2 calls were to be sent, for 40 s" in finding.sentence


@pytest.mark.parametrize("left", [15, -20], ids=["held", "changing hands"])
def test_due_calls_with_a_dispatcher_only_wait(left: float):
    lease(left)
    call()
    assert found() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"created_at": ago(20)},
        {"not_before": ago(-60)},
        {"not_before": ago(20)},
        {"run": "run"},
        {"stopped_at": ago(39)},
        {"expires": ago(1)},
    ],
    ids=["new", "later", "due lately", "sent", "stopped", "expired"],
)
def test_calls_that_are_not_due_need_no_dispatcher(fields: dict[str, Any]):
    call(**fields)
    assert found() == []


@pytest.mark.parametrize(
    ("kind", "name", "aspect"),
    [
        (DesiredState.Kind.QUEUE, QUEUE, DesiredState.Aspect.PAUSED),
        (DesiredState.Kind.TASK_NAME, TASK, DesiredState.Aspect.DISABLED),
        (DesiredState.Kind.JOB, "7", DesiredState.Aspect.DISABLED),
    ],
    ids=["queue", "task", "job"],
)
def test_calls_that_an_operator_holds_need_no_dispatcher(kind: str, name: str, aspect: str):
    call(arguments='[[], {"job_id": 7}]')
    assert len(found()) == 1
    DesiredState.objects.create(kind=kind, name=name, aspect=aspect, value=1, since=Now())
    assert found() == []


def test_both_reasons_of_a_queue_are_one_finding_and_one_alert():
    run()
    call()
    (finding,) = found()
    assert finding.sentence.count(QUEUE) == 2
    assert rules.of("calls-unsent").levels == rules.PROBLEMS
