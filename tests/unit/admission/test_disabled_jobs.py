"""A call of a disabled job waits as a row, and takes no room from others; one that was sent already waits again."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery import current_app
from celery.exceptions import Ignore

from ami.admission import leases, picks, waiting_calls
from ami.admission.models import Call, Run
from ami.celery import disabled
from ami.celery.staged_calls import DELIVERY, RUN_HEADER
from ami.queues import admission_facts, disabling
from ami.queues.models import Letter
from ami.queues.wishes import Operator
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
ADA = Operator("ada")


def call(*jobs: Any) -> None:
    for job in jobs:
        admitted.of_job.delay(job_id=job)


def send() -> list[picks.Outgoing]:
    leases.acquire([QUEUE], "me")
    jobs = admission_facts.read().disabled_jobs
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99, disabled_jobs=jobs)


def test_calls_of_a_disabled_job_are_not_sent_and_those_behind_them_are():
    call(7, 70, "7", 8)
    disabling.disable("job:7", ADA)
    assert [each.call.arguments for each in send()] == ['[[], {"job_id": 70}]', '[[], {"job_id": 8}]']
    assert send() == []
    [lane] = [each for each in waiting_calls.staged(current_app) if each.waiting]
    assert (lane.waiting, lane.disabled, lane.why) == (2, 2, "for its job, which is disabled")
    disabling.enable("job:7", ADA)
    assert len(send()) == 2


@pytest.mark.parametrize("what", ["job:7", admitted.of_job.name])
def test_call_that_was_sent_before_it_was_disabled_waits_as_a_row_again(what: str):
    call(7)
    [sent] = send()
    disabling.disable(what, ADA)
    disabled.apply(frozenset({admitted.of_job.name}), frozenset({"7"}))
    delivered = {"id": sent.call.task_id, "retries": 0, RUN_HEADER: sent.run, DELIVERY: "delivery"}
    message = SimpleNamespace(headers={}, properties={}, content_type="application/json", content_encoding="utf-8")
    request = SimpleNamespace(name=admitted.of_job.name, message=message, body=b"", delivery_info={})
    admitted.of_job.push_request(**disabled.marked(request, delivered))
    try:
        with pytest.raises(Ignore):
            disabled.hold(admitted.of_job, (), {"job_id": 7})
    finally:
        admitted.of_job.pop_request()
        disabled.apply(frozenset(), frozenset())
    assert not Run.objects.exists(), "it takes no room"
    assert not Letter.objects.exists()
    waiting = Call.objects.get(run=None)
    assert (waiting.starts, waiting.not_before is not None) == (0, True)
    disabling.enable(what, ADA)
    Call.objects.update(not_before=None)
    assert [each.call.pk for each in send()] == [waiting.pk]
