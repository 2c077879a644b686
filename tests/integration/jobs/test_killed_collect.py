"""A worker that is killed while it collects a job's images: the next one continues from the cursor (incident 14)."""

import multiprocessing
import os
import signal
from functools import partial

import pytest
from django.db import connection, connections

from ami.jobs.models import Job, JobImage
from ami.jobs.services import job_images, job_slice
from tests.support.product.job_setup import Now, World
from tests.support.product.large_sets import capture_set, job_of

CHUNK, IMAGES = 100, 500


class Dies:
    """Kills its process in place of a statement of the chunks, as the kernel would; those before are not counted."""

    def __init__(self, statement: int) -> None:
        self.left = statement
        self.has_begun = False

    def __call__(self, execute, sql, *args):
        self.has_begun |= sql.startswith("SELECT MAX")
        if self.has_begun and self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= self.has_begun
        return execute(sql, *args)


def collected(job: Job, *, dies_at: int | None = None) -> None:
    """Claim the job as the message of its slice does, each time it is delivered, and collect."""
    job = Job.objects.get(pk=job.pk)
    assert job_slice.claim(job, "the id of the message")
    if dies_at is None:
        assert job_images.collect(job, Now())
        return
    with connection.execute_wrapper(Dies(dies_at)):
        job_images.collect(job, Now())


@pytest.mark.parametrize("statement", [2, 3, 7])
def test_incident_14_a_killed_collect_continues_from_its_cursor(world: World, monkeypatch, statement: int) -> None:
    monkeypatch.setattr(job_images, "CHUNK", CHUNK)
    job = job_of(world, capture_set(world, IMAGES))
    connections.close_all()
    child = multiprocessing.get_context("fork").Process(target=partial(collected, job, dies_at=statement))
    child.start()
    child.join(timeout=60)
    assert child.exitcode == -signal.SIGKILL
    job.refresh_from_db()
    # Three statements to a chunk: find its end, write, store the cursor.
    chunks = statement // 3
    done_to = job.cursor.get("collected_to", 0)
    rows = JobImage.objects.filter(job=job)
    assert rows.filter(source_image__lte=done_to).count() == chunks * CHUNK
    assert rows.filter(source_image__gt=done_to).count() in (0, CHUNK)
    read: list[int] = []

    def count_reads(execute, sql, *args):
        read.extend([1] if sql.startswith("SELECT MAX") else [])
        return execute(sql, *args)

    with connection.execute_wrapper(count_reads):
        collected(job)
    assert rows.count() == IMAGES
    assert rows.values("source_image").distinct().count() == IMAGES
    # What is left, and the chunk that finds the end.
    assert len(read) == IMAGES // CHUNK - chunks + 1
