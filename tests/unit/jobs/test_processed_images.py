"""Collecting skips the images that the job's pipeline has processed with its present algorithms."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import DispatchMode, ImageState, JobStatus
from ami.jobs.services import job_images, ml_job
from ami.jobs.services.expected_results import keep_names
from ami.jobs.services.job_completion import complete_if_settled
from ami.jobs.services.progress import progress
from ami.jobs.services.transitions import move
from ami.main.models import Classification, Detection, SourceImage
from ami.ml.models import Algorithm
from tests.support.product.job_setup import Now, World
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def no_crops(monkeypatch):
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)


def started(job: Job) -> Job:
    """A job as `run_job` starts it, with the record of its pipeline."""
    move(job, JobStatus.STARTED)
    keep_names(job)
    return job


def handed_out(world: World, captures: list[SourceImage], **fields: Any) -> list[SourceImage]:
    """Collect a new job over the captures and return those of its images."""
    job = started(world.job(captures, **fields))
    assert job_images.collect(job, Now())
    return [row.source_image for row in JobImage.objects.filter(job=job).order_by("source_image")]


def processed(world: World, captures: list[SourceImage], result: Any = None, **fields: Any) -> Job:
    """Process the captures by a job."""
    job = started(world.job(captures, **fields))
    assert job_images.collect(job, Now())
    for capture in captures:
        handle_result(job.pk, result=result or world.found(capture, boxes=2))
    return job


def box(world: World, capture: SourceImage, *classifiers: Algorithm, x: int = 1, **columns: Any) -> Detection:
    found = Detection.objects.create(source_image=capture, detection_algorithm=world.detector, bbox=[x, 2, 30, 40])
    for each in classifiers:
        Classification.objects.create(detection=found, algorithm=each, score=0.5, **columns)
    return found


def added(world: World, key: str, task_type: str = "classification") -> Algorithm:
    """Add an algorithm to the world's pipeline."""
    made = Algorithm.objects.create(project=world.project, name=key, key=key, task_type=task_type)
    world.pipeline.algorithms.add(made)
    return made


def test_second_run_hands_out_only_what_failed(world: World) -> None:
    captures = world.captures(4)
    first = started(world.job(captures))
    assert job_images.collect(first, Now())
    for capture in captures[:2]:
        handle_result(first.pk, result=world.found(capture))
    handle_result(first.pk, result=world.found(captures[2], boxes=0))
    handle_result(first.pk, result={"error": "no picture", "image_id": str(captures[3].pk)})
    second = started(world.job(captures))
    assert job_images.collect(second, Now())
    assert list(JobImage.objects.filter(job=second).values_list("source_image", flat=True)) == [captures[3].pk]
    [collect] = [stage for stage in progress(second)["stages"] if stage["key"] == "collect"]
    assert {each["key"]: each["value"] for each in collect["params"]} == {"total_images": 1, "skipped": 3}
    assert second.log_entries.filter(message__contains="3 are processed already").exists()


def test_with_the_flag_all_are_handed_out_and_history_grows(world: World) -> None:
    captures = world.captures(2)
    processed(world, captures)
    world.project.feature_flags = {**world.project.feature_flags, "reprocess_all_images": True}
    world.project.save()
    assert handed_out(world, captures) == captures
    processed(world, captures)
    assert Classification.objects.count() == 8
    assert Classification.objects.current().count() == 4


@pytest.mark.parametrize("mode", [DispatchMode.ASYNC_API, DispatchMode.SYNC_API])
def test_job_whose_images_are_all_skipped_succeeds_at_once(world: World, mode: str) -> None:
    captures = world.captures(2)
    processed(world, captures)
    job = started(world.job(captures, mode=mode))
    assert ml_job.advance(job, Now())
    assert complete_if_settled(job.pk)
    job.refresh_from_db()
    assert (job.status, job.total) == (JobStatus.SUCCESS, 0)
    assert [stage["progress"] for stage in progress(job)["stages"]] == [1.0, 1.0, 1.0]


def test_rows_without_a_job_count(world: World) -> None:
    captures = world.captures(4)
    box(world, captures[0], world.classifier)
    box(world, captures[1])
    Detection.objects.create(source_image=captures[2], detection_algorithm=world.detector, bbox=None)
    assert handed_out(world, captures) == [captures[1], captures[3]]


def test_every_box_needs_every_classifier(world: World) -> None:
    captures = world.captures(3)
    second = added(world, "second")
    box(world, captures[0], world.classifier, second)
    box(world, captures[0], world.classifier, x=2)
    box(world, captures[1], world.classifier)
    box(world, captures[2], world.classifier, second)
    assert handed_out(world, captures) == captures[:2]


def test_null_marker_beside_an_unclassified_box_does_not_count(world: World) -> None:
    [capture] = world.captures(1)
    box(world, capture)
    Detection.objects.create(source_image=capture, detection_algorithm=world.detector, bbox=None)
    assert handed_out(world, [capture]) == [capture]


def test_box_that_a_filter_stopped_is_not_paid_again(world: World) -> None:
    captures = world.captures(2)
    added(world, "species")
    processed(world, captures)
    assert handed_out(world, captures) == []


def test_new_algorithm_processes_filtered_boxes_again(world: World) -> None:
    captures = world.captures(2)
    processed(world, captures)
    assert handed_out(world, captures) == []
    added(world, "species")
    assert handed_out(world, captures) == captures


def test_other_pipeline_with_the_same_filter_is_no_evidence(world: World) -> None:
    [capture] = world.captures(1)
    other = processed(world, [capture])
    added(world, "species")
    Job.objects.filter(pk=other.pk).update(
        cursor={"pipeline": {"slugs": ["x"], "algorithms": ["another"], "steps": ["another"]}}
    )
    assert handed_out(world, [capture]) == [capture]


def test_older_job_without_a_record_counts_if_no_algorithm_is_newer(world: World) -> None:
    captures = world.captures(2)
    added(world, "species")
    # SQLite's clock says milliseconds: a job may not begin in the one in which its algorithms are made.
    Algorithm.objects.update(created_at=F("created_at") - timedelta(seconds=1))
    job = processed(world, captures)
    Classification.objects.update(job=None)
    Job.objects.filter(pk=job.pk).update(cursor={})
    JobImage.objects.filter(job=job, source_image=captures[1]).update(state=ImageState.FAILED)
    assert handed_out(world, captures) == captures[1:]
    added(world, "newest")
    assert handed_out(world, captures) == captures


def test_another_detector_has_to_look_again(world: World) -> None:
    [capture] = world.captures(1)
    processed(world, [capture])
    world.pipeline.algorithms.remove(world.detector)
    added(world, "detector 2", "detection")
    assert handed_out(world, [capture]) == [capture]


def test_chosen_image_is_always_processed(world: World) -> None:
    [capture] = world.captures(1)
    processed(world, [capture])
    assert handed_out(world, [], source_image_single=capture) == [capture]
    job = world.job([capture])
    job.params = {**job.params, "asked_by_task": "x"}
    job.save()
    started(job)
    assert job_images.collect(job, Now())
    assert job.total == 1


@pytest.mark.parametrize("shuffle", [True, False])
def test_limit_is_of_images_that_are_not_skipped(world: World, shuffle: bool) -> None:
    captures = world.captures(5)
    processed(world, captures[:2])
    job = started(world.job(captures, limit=2, shuffle=shuffle))
    assert job_images.collect(job, Now())
    chosen = set(JobImage.objects.filter(job=job).values_list("source_image", flat=True))
    assert len(chosen) == 2
    assert chosen <= {each.pk for each in captures[2:]}
    assert job.cursor["skipped"] == 2


def test_repeated_chunk_changes_nothing(world: World, monkeypatch) -> None:
    monkeypatch.setattr(job_images, "CHUNK", 2)
    captures = world.captures(6)
    processed(world, captures[::2])
    job = started(world.job(captures))
    assert not job_images.collect(job, Now(steps=1))
    before = dict(job.cursor)
    assert not job_images.collect(job, Now(steps=1))
    job.save_progress(cursor=before)
    assert job_images.collect(job, Now())
    assert (job.total, job.cursor["skipped"]) == (3, 3)


def test_job_that_starts_over_skips_what_it_processed(world: World) -> None:
    captures = world.captures(3)
    job = processed(world, captures[:2])
    job.params = {"source_image_ids": [each.pk for each in captures]}
    job.collected_at = None
    job.save()
    JobImage.objects.filter(job=job).update(state=ImageState.PENDING)
    Job.objects.filter(pk=job.pk).update(status=JobStatus.STARTED, cursor={})
    job.refresh_from_db()
    assert job_images.collect(started(job), Now())
    assert list(JobImage.objects.filter(job=job).values_list("source_image", flat=True)) == [captures[2].pk]
    assert job.cursor["skipped"] == 2
