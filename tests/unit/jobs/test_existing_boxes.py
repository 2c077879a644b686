"""A push job of a project with the flag sends the boxes that its images have, and classifies these."""

from typing import Any

import pytest

from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services import job_slice
from ami.main.models import Classification, Detection, Occurrence
from ami.ml.models import Algorithm, ProcessingService
from tests.support.product.http_services import push_service, served
from tests.support.product.job_setup import Now, World, new_world
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


@pytest.fixture
def world(db, monkeypatch) -> World:
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)
    world = new_world()
    world.project.feature_flags = {**world.project.feature_flags, "reprocess_existing_detections": True}
    world.project.save()
    world.pipeline.default_config = {"request_source_image_batch_size": 10}
    world.pipeline.save()
    return world


def pushed(world: World, captures: list[Any], **fields: Any) -> tuple[Job, list[dict[str, Any]]]:
    """Run a push job whose service classifies the boxes it is given, and otherwise finds one; return its requests."""
    seen: list[dict[str, Any]] = []
    by_id = {str(capture.pk): capture for capture in captures}

    def answer(path: str, body: dict[str, Any]) -> tuple[int, object]:
        seen.append(body)
        found = world.found(*(by_id[image["id"]] for image in body["source_images"]), label="New", score=0.8)
        if given := body.get("detections"):
            [model, *_] = found["detections"]
            found["detections"] = [
                {**model, "source_image_id": each["source_image"]["id"], "bbox": each["bbox"]}
                | {"algorithm": each["algorithm"]}
                for each in given
            ]
        return 200, found

    with served(answer) as url:
        ProcessingService.objects.all().delete()
        push_service(world, url)
        job = world.job(captures, mode="sync_api", shuffle=False, **fields)
        job_slice.run_slice(job, "me", Now())
    job.refresh_from_db()
    return job, seen


def test_boxes_are_sent_with_their_own_detector_and_classified(world: World) -> None:
    captures = world.captures(3)
    other = Algorithm.objects.create(project=world.project, name="Other", key="other", task_type="detection")
    for algorithm, box in ((world.detector, [1.25, 2, 30, 40]), (other, [50, 2, 90, 40])):
        Detection.objects.create(source_image=captures[0], detection_algorithm=algorithm, bbox=box)
    Detection.objects.create(source_image=captures[1], detection_algorithm=world.detector, bbox=None)
    job, seen = pushed(world, captures)
    assert job.status == JobStatus.SUCCESS
    # The empty sheet is processed; the third image goes without boxes, in a request of its own.
    assert [[image["id"] for image in body["source_images"]] for body in seen] == [
        [str(captures[0].pk)],
        [str(captures[2].pk)],
    ]
    sent = [(each["bbox"], each["algorithm"]) for each in seen[0]["detections"]]
    assert sent == [
        ({"x1": 1.25, "y1": 2, "x2": 30, "y2": 40}, {"name": world.detector.name, "key": world.detector.key}),
        ({"x1": 50, "y1": 2, "x2": 90, "y2": 40}, {"name": "Other", "key": "other"}),
    ]
    assert seen[0]["detections"][0]["source_image"] == seen[0]["source_images"][0]
    assert "detections" not in seen[1]
    assert Detection.objects.real().filter(source_image=captures[0]).count() == 2
    assert Classification.objects.filter(detection__source_image=captures[0], job=job).count() == 2
    assert Occurrence.objects.filter(determination__name="New").count() == 3


def test_boxes_of_another_detector_are_skipped_once_they_are_classified(world: World) -> None:
    [capture] = world.captures(1)
    other = Algorithm.objects.create(project=world.project, name="Other", key="other", task_type="detection")
    Detection.objects.create(source_image=capture, detection_algorithm=other, bbox=[1, 2, 30, 40])
    for requests in (1, 0):
        _, seen = pushed(world, [capture])
        assert len(seen) == requests
    assert Detection.objects.count() == 1


def test_with_both_flags_boxes_are_classified_again_and_history_grows(world: World) -> None:
    world.project.feature_flags = {**world.project.feature_flags, "reprocess_all_images": True}
    world.project.save()
    [capture] = world.captures(1)
    first = world.running([capture])
    handle_result(first.pk, result=world.found(capture, boxes=2, label="Old"))
    second, seen = pushed(world, [capture])
    assert len(seen[0]["detections"]) == Detection.objects.count() == 2
    rows = Classification.objects.order_by("pk").values_list("job", "taxon__name", "is_current")
    assert list(rows) == [(first.pk, "Old", False)] * 2 + [(second.pk, "New", True)] * 2


def test_without_the_flag_no_boxes_are_sent(world: World) -> None:
    world.project.feature_flags = {}
    world.project.save()
    [capture] = world.captures(1)
    Detection.objects.create(source_image=capture, detection_algorithm=world.detector, bbox=[1, 2, 30, 40])
    _, seen = pushed(world, [capture])
    assert ["detections" in body for body in seen] == [False]
