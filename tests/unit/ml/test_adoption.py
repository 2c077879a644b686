"""Adoption: captures processed by a shared pipeline, then again by the project's own."""

import pytest

from ami.jobs.models import Job
from ami.main.models import Classification, Detection, Occurrence
from ami.ml.models import Algorithm, Pipeline, ProcessingService
from ami.ml.schemas import PipelineConfigResponse
from ami.ml.services.registration import register_pull_service
from tests.support.product.job_setup import World, new_world
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def no_crops(monkeypatch):
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)


@pytest.fixture
def shared(db) -> World:
    return new_world("shared", own=False)


def adopted(world: World) -> Pipeline:
    """Register the shared pipeline of the world's project as its own."""
    algorithms = [
        {"name": "Det", "key": world.detector.key, "task_type": "detection"},
        {
            "name": "Cls",
            "key": world.classifier.key,
            "task_type": "classification",
            "category_map": {"data": [], "labels": ["Noctua pronuba", "other"]},
        },
    ]
    wanted = {"name": "Own", "slug": world.pipeline.slug, "version": 2, "algorithms": algorithms, "stages": []}
    register_pull_service("worker", world.project.pk, [PipelineConfigResponse.model_validate(wanted)])
    return Pipeline.objects.get(project=world.project)


def test_capture_processed_anew_keeps_its_boxes_and_occurrences(shared: World) -> None:
    [capture] = shared.captures(1)
    handle_result(shared.running([capture]).pk, result=shared.found(capture, boxes=2, label="Old", score=0.99))
    before = set(Occurrence.objects.values_list("pk", flat=True))
    shared.pipeline = adopted(shared)
    handle_result(shared.running([capture]).pk, result=shared.found(capture, boxes=2, label="New", score=0.6))
    assert set(Occurrence.objects.values_list("pk", flat=True)) == before
    assert set(Occurrence.objects.values_list("determination__name", flat=True)) == {"New"}
    for rows in (Detection.objects.all(), Classification.objects.current()):
        assert rows.count() == 2
    assert Detection.objects.filter(detection_algorithm__project=shared.project).count() == 2


def test_null_marker_of_the_shared_detector_becomes_the_own_ones(shared: World) -> None:
    [capture] = shared.captures(1)
    handle_result(shared.running([capture]).pk, result=shared.found(capture, boxes=0))
    shared.pipeline = adopted(shared)
    handle_result(shared.running([capture]).pk, result=shared.found(capture, boxes=0))
    assert Detection.objects.get().detection_algorithm.project == shared.project


def test_job_that_began_on_the_shared_pipeline_is_saved_with_the_own_algorithms(shared: World) -> None:
    captures = shared.captures(2)
    job = shared.running(captures)
    handle_result(job.pk, result=shared.found(captures[0]))
    adopted(shared)
    handle_result(job.pk, result=shared.found(captures[1]))
    job.refresh_from_db()
    assert (job.status, job.pipeline) == ("SUCCESS", shared.pipeline)
    owners = Detection.objects.order_by("source_image").values_list("detection_algorithm__project", flat=True)
    assert list(owners) == [None, shared.project.pk]


def test_captures_of_another_project_keep_the_shared_algorithms(shared: World) -> None:
    other = new_world("other")
    shared.pipeline.project_configs.create(project=other.project)
    [capture] = other.captures(1)
    other.pipeline = shared.pipeline
    job = other.running([capture])
    adopted(shared)
    handle_result(job.pk, result=shared.found(capture))
    assert Detection.objects.get().detection_algorithm == shared.detector
    assert Classification.objects.get().algorithm == shared.classifier


def test_shared_algorithm_of_no_pipeline_of_the_project_is_not_registered(shared: World) -> None:
    from ami.ml.errors import PipelineNotConfigured

    other = new_world("other")
    [capture] = other.captures(1)
    result = other.found(capture)
    result["detections"][0]["algorithm"]["key"] = shared.detector.key
    job = other.running([capture])
    names = {"slugs": [other.pipeline.slug], "algorithms": [shared.detector.key, other.classifier.key]}
    Job.objects.filter(pk=job.pk).update(cursor={"pipeline": names})
    with pytest.raises(PipelineNotConfigured, match=shared.detector.key):
        handle_result(job.pk, result=result)
    assert not Detection.objects.exists()


# --- what the migrations do with what is there


def test_key_is_unique_within_a_project_and_within_the_catalogue(world: World) -> None:
    from django.db import IntegrityError, transaction

    other = new_world("other").project
    for project in (world.project, other, None):
        fields = {"name": "A", "key": "a", "project": project}
        Algorithm.objects.create(**fields)
        Pipeline.objects.create(name="P", slug="p", project=project)
        ProcessingService.objects.create(name="S", project=project)
        for model, again in (
            (Algorithm, {**fields, "name": "B"}),
            (Algorithm, {**fields, "key": "b"}),
            (Pipeline, {"name": "Q", "slug": "p", "project": project}),
            (Pipeline, {"name": "P", "slug": "q", "project": project}),
            (ProcessingService, {"name": "S", "project": project}),
        ):
            with pytest.raises(IntegrityError), transaction.atomic():
                model.objects.create(**again)
