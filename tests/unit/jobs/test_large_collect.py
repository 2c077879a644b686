"""Collecting the images of a large job: by chunks from a cursor, at a cost that does not grow with the job (I14)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from ami.jobs.models import Job, JobImage
from ami.jobs.services.job_images import CHUNK, collect
from tests.support.product.job_setup import Now, World
from tests.support.product.large_sets import capture_set, job_of
from tests.support.soak import soak

pytestmark = pytest.mark.sqlite

#: The incident's size under soak.
IMAGES = soak(15_000, 147_000)
#: One to read a chunk, one for the cursor, and those that write 1,000 rows: SQLite takes 999 values in each.
MOST_STATEMENTS = {"postgresql": 4, "sqlite": 18}
#: All captures of the short form as objects take 9 MiB; 2 MiB were seen with 147,000.
MOST_GROWTH_KIB = 8 * 1024
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


@contextmanager
def peak_growth() -> Iterator[list[int]]:
    """Yield a list that gets the growth of this process's peak of resident memory, in KiB."""
    Path("/proc/self/clear_refs").write_text("5")  # The peak is counted from now on (proc(5)).
    before, growth = peak_kib(), []
    yield growth
    growth.append(peak_kib() - before)


def peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_incident_14_a_large_job_is_collected_by_chunks_in_slices(world: World) -> None:
    captures = capture_set(world, IMAGES)
    job = job_of(world, captures)
    steps: list[tuple[int, int]] = []
    finished = False
    with peak_growth() as growth:
        while not finished:
            assert len(steps) <= IMAGES // CHUNK, "a slice collected nothing"
            work = CountingSlice(job, CHUNKS_PER_SLICE)
            with connection.execute_wrapper(work.count):
                finished = collect(Job.objects.get(pk=job.pk), work)
            assert work.asked <= CHUNKS_PER_SLICE
            steps += work.steps_of_work
    assert growth[0] < MOST_GROWTH_KIB
    job.refresh_from_db()
    assert (job.total, job.collected_at is not None) == (IMAGES, True)
    wanted = captures.images.through.objects.filter(sourceimagecollection=captures)
    assert JobImage.objects.filter(job=job, source_image__in=wanted.values("sourceimage")).count() == IMAGES
    assert JobImage.objects.filter(job=job).count() == IMAGES
    assert [rows for _, rows in steps] == [CHUNK] * (IMAGES // CHUNK)
    assert max(statements for statements, _ in steps) <= MOST_STATEMENTS[connection.vendor]
