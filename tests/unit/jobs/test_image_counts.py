"""The image counts that a final job stores, so that a list of jobs counts no images."""

from datetime import timedelta

import pytest
from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import image_settlement, job_completion, progress, transitions
from tests.support.product.job_setup import World

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture
def job(world: World) -> Job:
    """A job with two processed images and a failed one, all settled."""
    job = world.running(world.captures(3))
    JobImage.objects.filter(job=job).update(state=ImageState.PROCESSED, detections_count=2, classifications_count=1)
    last = JobImage.objects.filter(job=job).last()
    JobImage.objects.filter(pk=last.pk).update(state=ImageState.FAILED, detections_count=0, classifications_count=0)
    return job


def completed(job: Job) -> Job:
    assert job_completion.complete_if_settled(job.pk)
    job.refresh_from_db()
    return job


def test_completed_job_stores_its_counts(job, django_assert_num_queries):
    before = progress.count_images([job.pk])[job.pk]
    completed(job)
    assert progress.ImageCounts(**job.image_counts | {"errors": ()}) == before
    assert (before.total, before.failed, before.detections) == (3, 1, 4)
    shown = progress.progress(Job.objects.get(pk=job.pk))
    with django_assert_num_queries(0):
        assert progress.progress(job) == shown
    Job.objects.filter(pk=job.pk).update(image_counts=None)
    live = progress.progress(Job.objects.get(pk=job.pk))
    assert live == shown


def test_job_that_runs_again_is_counted_live(job):
    completed(job)
    image_settlement.reset_images(job.pk, everything=False)
    assert transitions.reopen(job)
    assert job.image_counts is None
    stages = {stage["key"]: stage for stage in progress.progress(job)["stages"]}
    assert {param["key"]: param["value"] for param in stages["process"]["params"]}["remaining"] == 1


def test_counts_of_an_ended_job_are_stored_a_day_later(job):
    JobImage.objects.filter(job=job).update(state=ImageState.PUBLISHED)
    Job.objects.filter(pk=job.pk).update(status=JobStatus.REVOKED, finished_at=timezone.now())
    assert progress.store_counts() == 0
    Job.objects.update(finished_at=timezone.now() - timedelta(days=1, seconds=1))
    assert progress.store_counts() == 1
    job.refresh_from_db()
    assert (job.image_counts["total"], job.image_counts["unsettled"]) == (3, 3)
    assert progress.store_counts() == 0


def test_running_job_stores_no_counts(world: World):
    job = world.running(world.captures(1))
    assert progress.store_counts() == 0
    assert Job.objects.get(pk=job.pk).image_counts is None
