"""Collecting a job's images, beside one ``INSERT ... SELECT`` of the same rows.

Both write the same columns in the same order of places (shuffled) into an empty table, and alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from django.db import connection
from django.db.models import F

from benchmarks.frame import Figure, test_database
from benchmarks.jobs import large_jobs

if TYPE_CHECKING:
    from tests.support.product.job_setup import World

TARGET = 0.6


def measure(images: int, rounds: int) -> Figure:
    """Collect jobs of so many images both ways in each round."""
    from tests.support.product.job_setup import new_world

    world = new_world(f"collect {images}")
    large_jobs.captures(world, images)
    pairs = [(timed(lambda: one_statement(world)), timed(lambda: collected(world))) for _ in range(rounds)]
    ratios = [one / ours for one, ours in pairs]
    one, ours = (float(np.median(column)) for column in zip(*pairs, strict=True))
    target = TARGET if connection.vendor == "postgresql" else None
    what, reference = f"collect {images:,} images", "one INSERT ... SELECT (ratio: it to collecting)"
    return Figure(what, "s", ours, reference, one, float(np.median(ratios)), at_least=target)


def one_statement(world: World) -> Callable[[], int]:
    """Return what writes all rows of a new job at once."""
    from ami.jobs.models import JobImage
    from ami.jobs.services import job_images
    from ami.jobs.services.insert_select import insert_select

    job = large_jobs.started_job(world)
    values: dict[str, Any] = {"source_image_id": F("pk"), "position": job_images.position_of(job)}
    return lambda: insert_select(JobImage, job_images.images_of(job), job_id=job.pk, **values)


def collected(world: World) -> Callable[[], int]:
    """Return what collects a new job, and counts its images."""
    from ami.jobs.services import job_images, job_slice
    from tests.support.product.job_setup import Now

    job = large_jobs.started_job(world)
    assert job_slice.claim(job, "benchmark")

    def collect() -> int:
        assert job_images.collect(job, Now())
        return job.total or 0

    return collect


def timed(prepare: Callable[[], Callable[[], int]]) -> float:
    """Return the seconds of what ``prepare`` returns, which must write every image."""
    from ami.main.models import SourceImage

    large_jobs.forget_images()
    write = prepare()
    began = time.perf_counter()
    written = write()
    seconds = time.perf_counter() - began
    assert written == SourceImage.objects.count()
    return seconds


def figures(quick: bool) -> Iterator[Figure]:
    """Yield what 100,000 images take, and a million."""
    for images, rounds in ((100_000, 3),) if quick else ((100_000, 7), (1_000_000, 3)):
        with test_database():
            yield measure(images, rounds)
