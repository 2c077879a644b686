"""Posted results that name neither an image nor a delivery of their job are answered and make no row."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from ami.admission.models import Call
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState
from ami.jobs.services import ingest
from tests.support.product.job_setup import World, new_world

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

#: The latest delivery of the first image, which was delivered before; the time of its message is 1700.
LATEST, BEFORE = "$JS.ACK.job_{0}.c.2.41.77.1700.0", "$JS.ACK.job_{0}.c.1.41.12.1700.9"
INVENTED = ("z1", "", "$JS.ACK.job_{0}", "$JS.ACK.job_{0}.c.1.42.1.1700.0", "$JS.ACK.job_{0}.c.1.41.1.1699.0")


@pytest.fixture
def job(world: World) -> Job:
    job = world.running(world.captures(2))
    first = JobImage.objects.filter(job=job).earliest("pk")
    JobImage.objects.filter(pk=first.pk).update(
        state=ImageState.CLAIMED, reply_subject=LATEST.format(job.pk), attempts=2
    )
    return job


def junk(world: World) -> list[Any]:
    [foreign] = new_world("foreign").captures(1)
    empty = {"pipeline": world.pipeline.slug, "total_time": 1, "source_images": [], "detections": []}
    other = world.found(foreign)
    texts: list[Any] = [None, "ok", 7, {}, {"error": "x"}, {"error": "x", "image_id": str(foreign.pk)}, empty, other]
    return [*texts, {"error": "x", "image_id": "9" * 30}, {**other, "pipeline": "unknown"}]


def post(world: World, job: Job, items: list[Any]) -> list[dict[str, Any]]:
    client = APIClient()
    client.force_authenticate(world.user)
    answer = client.post(f"/api/v2/jobs/{job.pk}/result/", {"results": items}, format="json")
    assert answer.status_code == 200, answer.content
    tasks: list[dict[str, Any]] = answer.json()["tasks"]
    return tasks


def test_junk_with_an_invented_subject_makes_no_row(world: World, job: Job) -> None:
    other = world.running(world.captures(1))
    subjects = [*(each.format(job.pk) for each in INVENTED), LATEST.format(other.pk)]
    results = junk(world)
    items = [{"reply_subject": subject, "result": result} for subject in subjects for result in results]
    tasks = post(world, job, [*items, {"reply_subject": "z"}, {}])
    assert {(task["status"], task["task_id"], bool(task["reason"])) for task in tasks} == {("refused", "", True)}
    assert not StoredResult.objects.exists()
    assert not Call.objects.exists()


@pytest.mark.parametrize("state", [ImageState.CLAIMED, ImageState.PROCESSED, ImageState.FAILED])
def test_late_delivery_is_taken_whatever_its_image_is(world: World, job: Job, state: str) -> None:
    JobImage.objects.filter(job=job, attempts=2).update(state=state)
    subjects = [LATEST.format(job.pk), BEFORE.format(job.pk)]
    tasks = post(world, job, [{"reply_subject": subject, "result": {"error": "x"}} for subject in subjects])
    assert [task["status"] for task in tasks] == ["queued", "queued"]
    assert set(StoredResult.objects.values_list("reply_subject", flat=True)) == set(subjects)


def test_result_of_an_image_needs_no_known_subject(world: World, job: Job) -> None:
    """Its delivery may be of an earlier run, or of an earlier message."""
    image = JobImage.objects.filter(job=job).latest("pk").source_image
    items = [world.found(image), {"error": "x", "image_id": str(image.pk)}]
    tasks = post(world, job, [{"reply_subject": "z1", "result": item} for item in items])
    assert [task["status"] for task in tasks] == ["queued", "queued"]
    ingest.handle_batch(job.pk, list(StoredResult.objects.order_by("pk").values_list("pk", flat=True)))
    assert JobImage.objects.get(job=job, source_image=image).state == ImageState.PROCESSED


def test_statements_do_not_grow_with_junk(world: World, job: Job) -> None:
    subject = f"$JS.ACK.job_{job.pk}.c.1.%s.1.1700.0"
    taken = []
    for items in (100, 900):
        post(world, job, [])
        with CaptureQueriesContext(connection) as seen:
            post(world, job, [{"reply_subject": subject % number} for number in range(items)])
        taken.append(len(seen))
    assert taken[0] == taken[1]
