"""The tasks of the app `jobs`, run eagerly: slices, retries, failures."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from ami.jobs.models import Job, StoredResult
from ami.jobs.models.states import JobStatus
from ami.jobs.services import job_kinds, job_slice, operations, stored_results
from ami.jobs.services.job_kinds import job_kind
from ami.jobs.services.transitions import move
from ami.jobs.tasks import process_nats_pipeline_result, run_job
from tests.support.product.job_setup import World, new_world

pytestmark = pytest.mark.sqlite


@pytest.fixture
def world(transactional_db) -> World:
    return new_world()


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    """Run tasks eagerly: these tests are about their effects, not about the broker."""
    current_app.conf.task_always_eager = True
    yield
    current_app.conf.task_always_eager = False


@pytest.fixture
def kind() -> Iterator[dict[str, Any]]:
    """A job kind whose ``advance`` is set by the test."""
    code: dict[str, Any] = {}
    job_kind("test_kind", stages=["work"])(lambda job, work: code["advance"](job, work))
    yield code
    job_kinds._kinds.pop("test_kind")


def make(world: World) -> Job:
    return operations.create("test_kind", world.project, name="test")


def test_a_job_goes_through_its_slices_to_success(world: World, kind) -> None:
    seen = []

    def advance(job, work):
        seen.append(job.cursor.get("at", 0))
        job.save_progress(cursor={"at": seen[-1] + 1}, done=seen[-1] + 1, total=3)
        return seen[-1] == 2

    kind["advance"] = advance
    job = make(world)
    asked = operations.run(job)
    job.refresh_from_db()
    assert seen == [0, 1, 2]
    assert (job.status, job.holder, job.done) == (JobStatus.SUCCESS, "", 3)
    assert asked.queue == "antenna-interactive"
    assert job.started_at
    assert job.finished_at


def test_an_error_is_retried_then_fails_the_job(world: World, kind) -> None:
    calls = []

    def advance(job, work):
        calls.append(1)
        job.save_progress(cursor={"progress": "made"})
        raise ValueError("broken")

    kind["advance"] = advance
    job = make(world)
    move(job, JobStatus.PENDING)
    assert run_job.apply(kwargs={"job_id": job.pk}, throw=False).state == "FAILURE"
    job.refresh_from_db()
    assert (job.status, job.holder, len(calls)) == (JobStatus.FAILURE, "", 4)
    assert "broken" in job.params["error"]


def test_incident_35_a_soft_time_limit_ends_the_slice_and_not_the_job(world: World, kind) -> None:
    from billiard.exceptions import SoftTimeLimitExceeded

    calls = []

    def advance(job, work):
        calls.append(1)
        if len(calls) == 1:
            raise SoftTimeLimitExceeded
        return True

    kind["advance"] = advance
    job = make(world)
    operations.run(job)
    job.refresh_from_db()
    assert (job.status, len(calls)) == (JobStatus.SUCCESS, 2)


def test_duplicate_message_drops_itself_redelivered_one_continues(world: World, kind) -> None:
    calls = []
    kind["advance"] = lambda job, work: bool(calls.append(job.holder)) or True
    job = make(world)
    move(job, JobStatus.PENDING)
    assert job_slice.claim(job, "the-first")
    run_job.apply(kwargs={"job_id": job.pk}, task_id="another", throw=True)
    assert calls == []
    run_job.apply(kwargs={"job_id": job.pk}, task_id="the-first", throw=True)
    job.refresh_from_db()
    assert (len(calls), job.task_id) == (1, "the-first")


def test_incident_40_job_cancelled_while_running_stays_revoked(world: World, kind) -> None:
    def advance(job, work):
        operations.cancel(Job.objects.get(pk=job.pk))
        assert Job.objects.get(pk=job.pk).status == JobStatus.CANCELING
        job.save_progress(done=1)
        return True

    kind["advance"] = advance
    job = make(world)
    operations.run(job)
    job.refresh_from_db()
    assert (job.status, job.holder) == (JobStatus.REVOKED, "")


def test_incident_40_a_job_cancelled_in_its_last_step_is_not_success(world: World, kind) -> None:
    kind["advance"] = lambda job, work: operations.cancel(Job.objects.get(pk=job.pk))
    job = make(world)
    operations.run(job)
    job.refresh_from_db()
    assert job.status == JobStatus.REVOKED


def test_an_unregistered_algorithm_fails_the_task_and_is_noted_on_the_result(world: World) -> None:
    from ami.jobs.services import stored_results

    [capture] = world.captures(1)
    job = world.running([capture])
    names = {"slugs": [world.pipeline.slug], "algorithms": ["unregistered", world.classifier.key]}
    Job.objects.filter(pk=job.pk).update(cursor={"pipeline": names})
    result = world.found(capture)
    result["detections"][0]["algorithm"]["key"] = "unregistered"
    row = stored_results.store(job, "r", result)
    message = {"job_id": job.pk, "result_key": row.key}
    assert process_nats_pipeline_result.apply(kwargs=message, throw=False).state == "FAILURE"
    assert "unregistered" in StoredResult.objects.get().error


def test_a_result_that_is_a_message_of_its_own_makes_crops(world: World) -> None:
    from django.core.files.storage import default_storage

    from ami.main.models import Detection

    [capture] = world.captures(1)
    job = world.running([capture])
    key = stored_results.store(job, "r", world.found(capture, boxes=2)).key
    process_nats_pipeline_result.apply(kwargs={"job_id": job.pk, "result_key": key, "reply_subject": "r"}, throw=True)
    for detection in Detection.objects.all():
        assert detection.path.startswith(f"detections/{detection.pk}-")
        assert default_storage.exists(detection.path)
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS


def test_a_result_of_a_deleted_job_is_dropped(world: World) -> None:
    process_nats_pipeline_result.apply(kwargs={"job_id": 10**9, "result_key": "gone"}, throw=True)


def test_incident_25_a_job_without_images_is_finished_at_once(world: World) -> None:
    job = world.job([])
    operations.run(job)
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS


def test_hazard_1_a_job_that_waits_long_in_its_queue_is_left_alone(world: World, monkeypatch) -> None:
    from datetime import timedelta

    from django.utils import timezone

    from ami.jobs.services.audits import stalled_jobs

    messages: list[dict[str, Any]] = []
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda **message: messages.append(message))
    job = world.job(world.captures(1))
    operations.run(job)
    sent = len(messages)
    old = timezone.now() - timedelta(days=2)
    Job.objects.update(created_at=old, updated_at=old, queued_at=timezone.now() - timedelta(hours=3), queued_times=6)
    for _ in range(3):
        assert stalled_jobs.rerun_stalled_jobs().checked == 0
        assert stalled_jobs.republish_unstarted_jobs().fixed == 0
    job.refresh_from_db()
    assert (job.status, len(messages)) == (JobStatus.PENDING, sent)


def test_job_with_a_lost_message_is_republished_at_growing_intervals(world: World, monkeypatch) -> None:
    from datetime import timedelta

    from django.utils import timezone

    from ami.jobs.services.audits import stalled_jobs

    messages: list[dict[str, Any]] = []
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda **message: messages.append(message))
    job = world.job([])
    operations.run(job)
    messages.clear()

    def audit_after(minutes: int) -> int:
        Job.objects.update(queued_at=timezone.now() - timedelta(minutes=minutes))
        return stalled_jobs.republish_unstarted_jobs().fixed

    assert [audit_after(minutes) for minutes in (9, 11, 11, 19, 21, 39, 41)] == [0, 1, 0, 0, 1, 0, 1]
    Job.objects.update(queued_times=1000)
    assert [audit_after(minutes) for minutes in (630, 650)] == [0, 1]
    arguments = {"job_id": job.pk, "project_id": job.project_id, "service_id": None}
    assert [message["kwargs"] for message in messages] == [arguments] * 4
    assert {message["headers"]["antenna_origin"] for message in messages} == {"person"}
    job.refresh_from_db()
    assert job.status == JobStatus.PENDING
    monkeypatch.undo()
    run_job.apply(kwargs=messages[0]["kwargs"], throw=True)
    run_job.apply(kwargs=messages[1]["kwargs"], throw=True)
    job.refresh_from_db()
    assert (job.status, stalled_jobs.republish_unstarted_jobs().checked) == (JobStatus.SUCCESS, 0)


def test_a_job_that_waits_for_its_time_is_not_published_again(world: World, monkeypatch) -> None:
    from datetime import timedelta

    from django.utils import timezone

    from ami.jobs.services.audits import stalled_jobs

    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda **_: None)
    operations.run(world.job([], delay=3600))
    now = timezone.now()
    Job.objects.update(queued_at=now - timedelta(minutes=50), scheduled_at=now + timedelta(minutes=10))
    assert stalled_jobs.republish_unstarted_jobs().fixed == 0
    Job.objects.update(scheduled_at=now - timedelta(minutes=11))
    assert stalled_jobs.republish_unstarted_jobs().fixed == 1


def test_waiting_for_nats_is_a_fresh_message_with_the_same_origin(world: World, kind, monkeypatch) -> None:
    from ami.jobs.errors import NatsUnavailable

    def advance(job, work):
        raise NatsUnavailable("unreachable")

    kind["advance"] = advance
    job = make(world)
    move(job, JobStatus.PENDING)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda **message: sent.append(message))
    headers: dict[str, Any] = {"antenna_origin": "beat"}
    for _ in range(8):
        assert run_job.apply(kwargs={"job_id": job.pk}, headers=headers, retries=3).state == "SUCCESS"
        headers = sent[-1]["headers"]
    assert [message["countdown"] for message in sent] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert all(set(message) == {"task_id", "kwargs", "countdown", "headers"} for message in sent)
    assert {message["headers"]["antenna_origin"] for message in sent} == {"beat"}
    job.refresh_from_db()
    assert (job.status, job.holder, job.tries) == (JobStatus.STARTED, "", 0)
    kind["advance"] = lambda job, work: True
    run_job.apply(kwargs=sent[-1]["kwargs"], headers=headers, throw=True)
    assert Job.objects.get(pk=job.pk).status == JobStatus.SUCCESS


def test_waiting_for_the_start_is_a_fresh_message(world: World, kind, monkeypatch) -> None:
    kind["advance"] = lambda job, work: True
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda **message: sent.append(message))
    job = operations.create("test_kind", world.project, name="test", delay=600)
    operations.run(job)
    sent.clear()
    assert run_job.apply(kwargs={"job_id": job.pk}, headers={"antenna_origin": "person"}).state == "SUCCESS"
    [message] = sent
    assert 590 < message["countdown"] <= 600
    assert message["headers"]["antenna_origin"] == "person"
    assert Job.objects.get(pk=job.pk).status == JobStatus.PENDING


def test_lost_children_do_not_use_up_a_jobs_tries(world: World, kind) -> None:
    calls = []

    def advance(job, work):
        calls.append(1)
        raise ValueError("broken")

    kind["advance"] = advance
    job = make(world)
    move(job, JobStatus.PENDING)
    assert run_job.apply(kwargs={"job_id": job.pk}, retries=3, throw=False).state == "FAILURE"
    assert (Job.objects.get(pk=job.pk).status, len(calls)) == (JobStatus.FAILURE, 4)


def test_job_of_a_dead_worker_is_run_again(world: World, kind) -> None:
    from datetime import timedelta

    from django.utils import timezone

    from ami.jobs.services.audits import stalled_jobs

    kind["advance"] = lambda job, work: True
    job = make(world)
    move(job, JobStatus.STARTED)
    job_slice.claim(job, "dead-worker")
    Job.objects.update(until=timezone.now() - timedelta(seconds=1))
    assert stalled_jobs.rerun_stalled_jobs().fixed == 1
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS


def test_job_that_kills_every_worker_is_failed(world: World, monkeypatch) -> None:
    from ami.jobs.services.audits import stalled_jobs

    republished: list[int] = []
    monkeypatch.setattr(stalled_jobs, "publish_run_jobs", republished.extend)
    job = world.claim(world.running(world.captures(1)))
    for _ in range(stalled_jobs.MOST_TRIES + 1):
        past = timezone.now() - timedelta(seconds=1)
        Job.objects.filter(pk=job.pk).update(holder="dead-worker", until=past)
        assert stalled_jobs.rerun_stalled_jobs().fixed == 1
    job.refresh_from_db()
    assert (job.status, len(republished)) == (JobStatus.FAILURE, stalled_jobs.MOST_TRIES)
    assert "dead-letter queue" in job.params["error"]
