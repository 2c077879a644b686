"""The status of a job changes only along the table of transitions."""

import pytest

from ami.jobs.errors import JobStopped, NotAllowed
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import FINAL, ImageState, JobStatus
from ami.jobs.services import operations
from ami.jobs.services.progress import progress
from ami.jobs.services.transitions import ALLOWED, move
from tests.support.product.job_setup import World
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


def test_nothing_leads_out_of_a_final_status() -> None:
    assert not any(FINAL & sources for sources in ALLOWED.values())


@pytest.mark.parametrize("final", sorted(FINAL))
def test_incident_40_a_final_job_stays_final(world: World, final: JobStatus) -> None:
    job = world.job([])
    Job.objects.filter(pk=job.pk).update(status=final)
    for to in sorted(ALLOWED):
        assert not move(job, to), to
        assert Job.objects.get(pk=job.pk).status == final


def test_incident_40_saving_a_stale_copy_changes_no_status(world: World) -> None:
    stale = world.job([])
    move(Job.objects.get(pk=stale.pk), JobStatus.STARTED)
    stale.name = "renamed"
    stale.save()
    job = Job.objects.get(pk=stale.pk)
    assert (job.name, job.status) == ("renamed", JobStatus.STARTED)


def test_incident_33_early_errors_do_not_fail_the_job(world: World) -> None:
    captures = world.captures(4)
    job = world.running(captures)

    for capture in captures[:2]:
        handle_result(job.pk, result={"error": "cold", "image_id": str(capture.pk)})
    job.refresh_from_db()
    shown = progress(job)
    assert job.status == JobStatus.STARTED
    assert [stage["progress"] for stage in shown["stages"]] == [1.0, 0.5, 0.5]
    assert shown["stages"][1]["status"] == "STARTED"


@pytest.mark.parametrize(("failed", "final_status"), [(2, JobStatus.SUCCESS), (3, JobStatus.FAILURE)])
def test_more_than_half_failed_is_a_failure(world: World, failed: int, final_status: JobStatus, monkeypatch) -> None:

    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)
    captures = world.captures(4)
    job = world.running(captures)
    for index, capture in enumerate(captures):
        error = {"error": "x", "image_id": str(capture.pk)}
        handle_result(job.pk, result=error if index < failed else world.found(capture))
    job.refresh_from_db()
    assert job.status == final_status
    [process] = [stage for stage in progress(job)["stages"] if stage["key"] == "process"]
    assert [p["value"] for p in process["params"]] == [4, 0, failed]


def test_a_job_that_is_not_active_refuses_progress(world: World) -> None:
    job = world.job([])
    with pytest.raises(JobStopped):
        job.save_progress(done=1)


def test_retry_keeps_what_succeeded_and_run_starts_over(world: World, monkeypatch) -> None:
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda **_: None)
    job = world.running(world.captures(3))
    with pytest.raises(NotAllowed):
        operations.retry(job)
    rows = list(JobImage.objects.order_by("pk"))
    JobImage.objects.filter(pk=rows[0].pk).update(state=ImageState.PROCESSED)
    JobImage.objects.exclude(pk=rows[0].pk).update(state=ImageState.FAILED)
    move(job, JobStatus.FAILURE)
    operations.retry(job)
    assert sorted(JobImage.objects.values_list("state", flat=True)) == ["pending", "pending", "processed"]
    assert Job.objects.get().status == JobStatus.PENDING
    move(job, JobStatus.SUCCESS)
    operations.run(job)
    assert set(JobImage.objects.values_list("state", flat=True)) == {"pending"}


def test_incident_36_refused_log_line_keeps_the_transaction(world: World) -> None:
    job = world.job([])
    job.log("bad \x00 line", context_value=object())
    job.log("good line")
    assert job.log_entries.filter(message="good line").exists()


def test_limit_and_shuffle_choose_the_same_images_in_every_slice(world: World) -> None:
    from ami.jobs.services import job_images
    from tests.support.product.job_setup import Now

    captures = world.captures(20)
    job = world.job(captures, limit=5)
    move(job, JobStatus.STARTED)
    assert job_images.collect(job, Now())
    job.cursor = {}
    assert job_images.collect(job, Now())
    assert JobImage.objects.filter(job=job).count() == 5
    assert JobImage.objects.values("position").distinct().count() == 5


@pytest.mark.parametrize("limit", [0, 5, 100])
@pytest.mark.parametrize("shuffle", [True, False])
def test_limit_is_a_number_of_images(world: World, limit: int, shuffle: bool) -> None:
    from ami.jobs.services import job_images
    from tests.support.product.job_setup import Now

    job = world.job(world.captures(20), limit=limit, shuffle=shuffle)
    move(job, JobStatus.STARTED)
    assert job_images.collect(job, Now())
    rows = JobImage.objects.filter(job=job).order_by("position")
    assert rows.count() == min(limit, 20)
    assert shuffle or [row.position for row in rows] == [row.source_image_id for row in rows]


def test_job_without_a_selection_collects_nothing(world: World) -> None:
    from ami.jobs.services import job_images
    from tests.support.product.job_setup import Now

    job = world.job([])
    move(job, JobStatus.STARTED)
    assert job_images.collect(job, Now())
    assert job.total == 0
