"""Asynchronous jobs through real worker processes, RabbitMQ and NATS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from rest_framework.test import APIClient

from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services import jetstream, operations
from ami.main.models import Detection
from tests.support.own_database import place_with_own_database
from tests.support.place import Place, until
from tests.support.product.job_setup import new_world


@pytest.fixture(scope="module")
def workers(django_db_setup, django_db_blocker) -> Iterator[Place]:
    """Workers of two queues that share pictures and stored results with this process."""
    with django_db_blocker.unblock(), place_with_own_database("real-workers") as place:
        place.environment["ANTENNA_TEST_FOLDER"] = str(Path(settings.MEDIA_ROOT).parent)
        place.workers("antenna-interactive", "antenna-ingest")
        yield place


def test_a_job_runs_through_real_workers(workers: Place, number: int) -> None:
    world = new_world("whole")
    captures = world.captures(12)
    job = world.job(captures, pk=number)
    assert operations.run(job).queue == "antenna-interactive"
    until(lambda: job.images.filter(state="published").count() == 12, 60, "every image is published")
    client = APIClient()
    client.force_authenticate(world.user)
    by_id = {str(capture.pk): capture for capture in captures}
    path = f"/api/v2/jobs/{number}"
    first, *rest = client.post(f"{path}/tasks/", {"batch_size": 20}, format="json").json()["tasks"]

    def post(*items: tuple[dict[str, str], object]) -> None:
        results = [{"reply_subject": task["reply_subject"], "result": result} for task, result in items]
        assert client.post(f"{path}/result/", {"results": results}, format="json").status_code == 200

    # It is refused, and its image fails.
    unknown = {**world.found(by_id[first["image_id"]]), "pipeline": "unknown"}
    post((first, unknown), *((task, world.found(by_id[task["image_id"]], boxes=2)) for task in rest))
    until(lambda: Detection.objects.exclude(path="").count() == 22, 60, "every crop is made")
    until(lambda: Job.objects.get(pk=number).status == JobStatus.SUCCESS, 60, "the job is finished")
    assert [row.source_image_id for row in job.images.filter(state="failed")] == [int(first["image_id"])]
    until(lambda: jetstream.consumer_state(number) is None, 60, "the stream is deleted")


def test_incident_1_a_job_whose_row_comes_after_its_message_is_run(workers: Place, number: int) -> None:
    world = new_world("late")
    message = workers.app.tasks["ami.jobs.tasks.run_job"].apply_async(
        kwargs={"job_id": number}, headers={"antenna_origin": "person"}
    )
    until(lambda: workers.ran("run_job", id=message.id, state="RETRY"), 60, "the message found no job")
    assert not Job.objects.filter(pk=number).exists()
    world.job([], pk=number)
    until(lambda: Job.objects.get(pk=number).status == JobStatus.SUCCESS, 60, "the job is finished")
    until(lambda: workers.ran("run_job", id=message.id, state="SUCCESS"), 60, "it was the same message")
