"""One slug in two projects of different owners: each project gets its own rows, over HTTP and real NATS."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from ami.jobs.models import Job
from ami.jobs.services import job_slice
from ami.jobs.services.jetstream import connection, delete_job
from ami.main.models import Detection, User
from ami.main.services import tokens
from ami.ml.models import Pipeline, ProcessingService
from tests.support.product.job_setup import Now, World, new_world
from tests.support.product.result_messages import handle_message, keep_result_messages

SLUG, LABELS = "sheet-moths", ["Noctua pronuba", "Agrotis exclamationis"]


@pytest.fixture
def published(monkeypatch) -> list[dict[str, Any]]:
    """Messages that the product published to Celery, recorded instead of sent."""
    monkeypatch.setattr("ami.ml.tasks.create_detection_images.apply_async", lambda kwargs, **_: None)
    return keep_result_messages(monkeypatch)


@pytest.fixture
def worlds(transactional_db, number: int):
    """Two owners' projects, each with two captures and the number that its job gets."""
    worlds = [new_world("first"), new_world("second")]
    for world in worlds:
        world.captures(2)
    yield worlds
    connection.close()
    delete_job(number + 1)


class PullClient:
    """The client of a processing service; like real ones it knows a token, a project and a slug."""

    def __init__(self, person: User) -> None:
        self.http = APIClient()
        self.http.credentials(HTTP_AUTHORIZATION=f"Token {tokens.issue(person)[1]}")

    def register(self, project: int) -> dict[str, Any]:
        category_map = {"labels": LABELS, "data": [{"index": n, "label": label} for n, label in enumerate(LABELS)]}
        algorithms = [
            {"name": "Sheet detector", "key": "sheet-detector", "task_type": "localization", "version": 1},
            {
                "name": "Species",
                "key": "species",
                "task_type": "classification",
                "version": 1,
                "category_map": category_map,
            },
        ]
        pipeline = {"name": "Sheet moths", "slug": SLUG, "version": 1, "algorithms": algorithms, "stages": []}
        body = {"processing_service_name": "Sheet worker", "pipelines": [pipeline]}
        answer = self.http.post(f"/api/v2/projects/{project}/pipelines/", body, format="json")
        assert answer.status_code == 201, answer.content
        return answer.json()

    def jobs(self) -> list[dict[str, Any]]:
        query = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": SLUG, "limit": 10}
        return self.http.get("/api/v2/jobs/", query).json()["results"]

    def work(self, job: int) -> int:
        """Fetch the job's tasks, post a result for each, and return how many there were."""
        tasks = self.http.post(f"/api/v2/jobs/{job}/tasks/", {"batch_size": 8}, format="json").json()["tasks"]
        results = [{"reply_subject": task["reply_subject"], "result": result(task["image_id"])} for task in tasks]
        answer = self.http.post(f"/api/v2/jobs/{job}/result/", {"results": results}, format="json")
        assert answer.status_code == 200, answer.content
        return len(tasks)


def result(image: str) -> dict[str, Any]:
    classification = {
        "classification": LABELS[0],
        "labels": LABELS,
        "scores": [0.9, 0.1],
        "algorithm": {"name": "Species", "key": "species"},
        "terminal": True,
        "timestamp": "2026-06-01T22:00:00",
    }
    detection = {
        "source_image_id": image,
        "bbox": {"x1": 1, "y1": 1, "x2": 9, "y2": 9},
        "algorithm": {"name": "Sheet detector", "key": "sheet-detector"},
        "timestamp": "2026-06-01T22:00:00",
        "classifications": [classification],
    }
    source = {"id": image, "url": "http://example.org/x.jpg"}
    return {"pipeline": SLUG, "total_time": 0.1, "source_images": [source], "detections": [detection]}


@pytest.mark.parametrize("whose", ["both owners' tokens", "one worker's token"])
def test_same_slug_of_two_projects_runs_in_both(worlds: list[World], number: int, published, whose: str) -> None:
    clients = [PullClient(world.user) for world in worlds]
    if whose == "one worker's token":
        worker = User.objects.create_user("worker@example.org")
        for world in worlds:
            world.project.members.add(worker)
        clients = [PullClient(worker)] * 2
    for pk, (world, client) in enumerate(zip(worlds, clients, strict=True), number):
        assert client.register(world.project.pk)["pipelines_created"] == [SLUG]
        world.pipeline = Pipeline.objects.get(project=world.project, slug=SLUG)
        job = world.job(list(world.project.captures.all()), pk=pk)
        job_slice.run_slice(job, "first", Now())
    for world, client in zip(worlds, clients, strict=True):
        job = Job.objects.get(project=world.project)
        assert {"id": job.pk, "pipeline_slug": SLUG} in client.jobs()
        assert client.work(job.pk) == 2
    for message in published:
        handle_message(message)
    for world in worlds:
        assert Job.objects.get(project=world.project).status == "SUCCESS"
        boxes = Detection.objects.filter(source_image__project=world.project)
        assert set(boxes.values_list("detection_algorithm__project", flat=True)) == {world.project.pk}
        maps = set(boxes.values_list("classifications__category_map__project", flat=True))
        assert (boxes.count(), maps) == (2, {world.project.pk})
        assert ProcessingService.objects.get(project=world.project).last_seen_live
