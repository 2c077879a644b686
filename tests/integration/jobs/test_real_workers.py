"""One asynchronous job through real worker processes, RabbitMQ and NATS."""

from pathlib import Path

from rest_framework.test import APIClient

from ami.jobs import jetstream, operations
from ami.jobs.models import Job
from ami.jobs.states import JobStatus
from ami.main.models import Detection
from tests.support.place import Place, until
from tests.support.product.job_setup import World


def test_a_job_runs_through_real_workers(settings, world: World, number: int, database_place: Place) -> None:
    # The workers read the same pictures and stored results as this process.
    database_place.environment["ANTENNA_TEST_FOLDER"] = str(Path(settings.MEDIA_ROOT).parent)
    database_place.workers("antenna-interactive", "antenna-ingest")
    captures = world.captures(12)
    job = world.job(captures, pk=number)
    assert operations.run(job).queue == "antenna-interactive"
    until(lambda: job.images.filter(state="published").count() == 12, what="every image is published")
    client = APIClient()
    client.force_authenticate(world.user)
    by_id = {str(capture.pk): capture for capture in captures}
    path = f"/api/v2/jobs/{number}"
    first, *rest = client.post(f"{path}/tasks/", {"batch_size": 20}, format="json").json()["tasks"]

    def post(*items: tuple[dict[str, str], object]) -> None:
        results = [{"reply_subject": task["reply_subject"], "result": result} for task, result in items]
        assert client.post(f"{path}/result/", {"results": results}, format="json").status_code == 200

    unknown = {**world.found(by_id[first["image_id"]]), "pipeline": "nobody's"}
    post((first, unknown), *((task, world.found(by_id[task["image_id"]], boxes=2)) for task in rest))
    until(lambda: Detection.objects.exclude(path="").count() == 22, what="every crop is made")
    until(lambda: job.stored_results.exclude(error="").exists(), what="the unknown pipeline's task is buried")
    post((first, {"error": "could not be opened"}))
    until(lambda: Job.objects.get(pk=number).status == JobStatus.SUCCESS, what="the job is finished")
    until(lambda: jetstream.consumer_state(number) is None, what="the stream is deleted")


def test_incident_1_a_job_whose_row_comes_after_its_message_is_run(
    settings, world: World, number: int, database_place: Place
) -> None:
    database_place.environment["ANTENNA_TEST_FOLDER"] = str(Path(settings.MEDIA_ROOT).parent)
    database_place.worker("antenna-interactive")
    message = database_place.app.tasks["ami.jobs.tasks.run_job"].apply_async(
        kwargs={"job_id": number}, headers={"antenna_origin": "person"}
    )
    until(lambda: database_place.ran("run_job", id=message.id, state="RETRY"), what="the message found no job")
    assert not Job.objects.exists()
    world.job([], pk=number)
    until(lambda: Job.objects.get(pk=number).status == JobStatus.SUCCESS, what="the job is finished")
    until(lambda: database_place.ran("run_job", id=message.id, state="SUCCESS"), what="it was the same message")
