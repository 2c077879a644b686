"""Collecting the images of a large job: by chunks from a cursor, at a cost that does not grow with the job (I14)."""

import tracemalloc
from collections.abc import Callable

import pytest
from django.db import connection

from ami.jobs.models import Job, JobImage
from ami.jobs.services import job_images
from ami.jobs.services.job_images import collect
from tests.support.product.job_setup import Now, World
from tests.support.product.large_sets import capture_set, job_of
from tests.support.soak import soak

pytestmark = pytest.mark.sqlite

#: The incident's size under soak.
IMAGES = soak(15_000, 147_000)
CHUNK = 1000
#: One to find the end of a chunk, one that writes it, one for the cursor.
MOST_STATEMENTS = 3
#: A slice begins with those that read the job, and which images its pipeline has processed.
MOST_TO_BEGIN = 7
#: What a slice may allocate, in KiB: no image passes through this process.
MOST_ALLOCATED_KIB = 1024
CHUNKS_PER_SLICE = 6


class CountingSlice(Now):
    """Counts the statements and the rows of each step, that is until the next question whether the slice is over."""

    def __init__(self, job: Job, steps: int = 10**9) -> None:
        super().__init__(steps)
        self.job, self.statements, self.collected = job, 0, JobImage.objects.filter(job=job).count()
        self.steps_of_work: list[tuple[int, int]] = []

    def over(self) -> bool:
        statements = self.statements
        collected = JobImage.objects.filter(job=self.job).count()
        self.steps_of_work.append((statements, collected - self.collected))
        self.statements, self.collected = 0, collected
        return super().over()

    def count(self, execute, *args):
        self.statements += 1
        return execute(*args)


def allocated_kib(work: Callable[[], bool]) -> int:
    """Return the peak of what was allocated during the work; it must not be finished by that."""
    tracemalloc.start()
    try:
        assert not work()
        return tracemalloc.get_traced_memory()[1] // 1024
    finally:
        tracemalloc.stop()


def test_incident_14_a_large_job_is_collected_by_chunks_in_slices(world: World, monkeypatch) -> None:
    monkeypatch.setattr(job_images, "CHUNK", CHUNK)
    captures = capture_set(world, IMAGES)
    job = job_of(world, captures)
    steps: list[tuple[int, int]] = []

    def one_slice() -> bool:
        assert len(steps) <= IMAGES // CHUNK, "a slice collected nothing"
        work = CountingSlice(job, CHUNKS_PER_SLICE)
        with connection.execute_wrapper(work.count):
            finished = collect(Job.objects.get(pk=job.pk), work)
        assert work.asked <= CHUNKS_PER_SLICE
        steps.extend(work.steps_of_work)
        return finished

    assert allocated_kib(one_slice) < MOST_ALLOCATED_KIB
    while not one_slice():
        pass
    job.refresh_from_db()
    assert (job.total, job.collected_at is not None) == (IMAGES, True)
    wanted = captures.images.through.objects.filter(sourceimagecollection=captures)
    assert JobImage.objects.filter(job=job, source_image__in=wanted.values("sourceimage")).count() == IMAGES
    assert JobImage.objects.filter(job=job).count() == IMAGES
    assert [rows for _, rows in steps] == [CHUNK] * (IMAGES // CHUNK)
    statements = [number for number, _ in steps]
    assert max(statements) <= MOST_STATEMENTS + MOST_TO_BEGIN
    assert max(number for at, number in enumerate(statements) if at % CHUNKS_PER_SLICE) <= MOST_STATEMENTS
