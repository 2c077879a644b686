"""Dispatching by chunks: what each chunk costs, and that a cancelled job gets no further one."""

from typing import Any

import pytest
from django.db import connection

from ami.jobs.errors import JobStopped
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import jetstream, job_images, pull_dispatch
from ami.jobs.services.transitions import move
from tests.support.product.job_setup import Now, World

IMAGES = 12


@pytest.fixture
def job(world: World, number: int) -> Job:
    """A job with its images collected."""
    made = world.job(world.captures(IMAGES), pk=number)
    assert move(made, JobStatus.STARTED)
    assert job_images.collect(made, Now())
    return made


def test_chunk_costs_three_statements_and_reads_the_columns_of_its_messages(job: Job, monkeypatch) -> None:
    monkeypatch.setattr(pull_dispatch, "CHUNK", 4)
    steps: list[list[str]] = [[]]

    class Steps(Now):
        def over(self) -> bool:
            steps.append([])
            return super().over()

    def record(execute: Any, sql: str, *args: Any) -> Any:
        steps[-1].append(sql)
        return execute(sql, *args)

    with connection.execute_wrapper(record):
        assert pull_dispatch.dispatch(job, Steps())
    read, status, mark = steps[1]
    assert "main_sourceimage" in read
    assert "checksum" not in read
    assert status.startswith("SELECT")
    assert mark.startswith("UPDATE")
    assert JobImage.objects.filter(job=job, state=ImageState.PUBLISHED).count() == IMAGES
    assert len(jetstream.fetch(job.pk, 2 * IMAGES)) == IMAGES


def test_incident_42_cancelled_job_gets_no_further_chunk(job: Job, monkeypatch) -> None:
    monkeypatch.setattr(pull_dispatch, "CHUNK", 4)

    class Cancels(Now):
        def over(self) -> bool:
            assert move(Job.objects.get(pk=job.pk), JobStatus.CANCELING)
            return False

    with pytest.raises(JobStopped):
        pull_dispatch.dispatch(job, Cancels())
    assert JobImage.objects.filter(job=job, state=ImageState.PUBLISHED).count() == 4
