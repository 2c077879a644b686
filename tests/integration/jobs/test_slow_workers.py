"""Slow pull workers on real NATS: a worker that polls keeps its images, for a bounded time (incident 22)."""

import pytest
from rest_framework.test import APIClient

from ami.jobs.models import Job, JobImage
from ami.jobs.services import job_slice
from ami.jobs.services.job_slice import Next
from tests.support.place import until
from tests.support.product.job_setup import Now, World
from tests.support.product.result_messages import keep_result_messages


@pytest.fixture(autouse=True)
def no_broker(monkeypatch) -> None:
    """Publish no results: these tests are about unhandled ones."""
    keep_result_messages(monkeypatch)


@pytest.fixture
def client(world: World) -> APIClient:
    client = APIClient()
    client.force_authenticate(world.user)
    return client


def started(world: World, number: int, images: int = 1) -> Job:
    job = world.job(world.captures(images), pk=number)
    assert job_slice.run_slice(job, "first", Now()) is Next.NOTHING
    job.refresh_from_db()
    return job


def poll(client: APIClient, job: Job, host: str, batch: int = 1) -> list[dict[str, str]]:
    body = {"batch_size": batch, "client_info": {"hostname": host}}
    answer = client.post(f"/api/v2/jobs/{job.pk}/tasks/", body, format="json")
    assert answer.status_code == 200, answer.content
    return answer.json()["tasks"]


def row_of(job: Job) -> JobImage:
    return JobImage.objects.get(job=job)


def test_incident_22_slow_worker_that_polls_keeps_its_images(settings, world, client, number) -> None:
    settings.NATS_TASK_TTR = 3
    job = started(world, number)
    assert len(poll(client, job, "slow")) == 1
    again: list[dict[str, str]] = []

    def extended_past_the_wait() -> bool:
        again.extend(poll(client, job, "slow"))
        # Extensions are a third of the wait apart: the fourth is after its end.
        return bool(again) or row_of(job).extensions >= 4

    until(extended_past_the_wait, 60)
    assert again == []
    assert row_of(job).attempts == 1


def test_incident_22_images_of_a_worker_that_stops_polling_are_redelivered(settings, world, client, number) -> None:
    settings.NATS_TASK_TTR = 2
    job = started(world, number)
    assert len(poll(client, job, "stops")) == 1
    until(lambda: poll(client, job, "stops") or row_of(job).extensions)
    [again] = until(lambda: poll(client, job, "another"))
    row = row_of(job)
    assert (row.reply_subject, row.attempts, row.extensions) == (again["reply_subject"], 2, 0)


def test_incident_22_a_worker_that_polls_for_ever_keeps_no_image_for_ever(settings, world, client, number) -> None:
    settings.NATS_TASK_TTR, settings.NATS_MAX_EXTENSIONS = 2, 1
    job = started(world, number)
    assert len(poll(client, job, "hoarder")) == 1
    most: list[int] = []

    def delivered_again() -> list[dict[str, str]]:
        tasks = poll(client, job, "hoarder")
        most.append(row_of(job).extensions)
        return tasks

    assert len(until(delivered_again)) == 1
    assert max(most) == 1
    assert row_of(job).attempts == 2


def test_incident_22_posting_a_result_keeps_the_other_images(settings, world, client, number) -> None:
    settings.NATS_TASK_TTR = 3
    job = started(world, number, 2)
    first, second = poll(client, job, "slow", 2)
    result = {"reply_subject": first["reply_subject"], "result": {"error": "x", "image_id": first["image_id"]}}
    body = {"results": [result], "client_info": {"hostname": "slow"}}

    def posted_past_the_wait() -> bool:
        # Equal results are one result, so that its image stays unsettled until it is handled.
        assert client.post(f"/api/v2/jobs/{number}/result/", body, format="json").status_code == 200
        return JobImage.objects.get(job=job, source_image=second["image_id"]).extensions >= 4

    until(posted_past_the_wait)
    assert poll(client, job, "another", 2) == []
