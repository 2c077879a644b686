"""``python -m benchmarks.collect``: collecting a job's images, beside one ``INSERT ... SELECT`` of the same rows.

Both write the same columns in the same order of places (shuffled) into an empty table, and alternate. Run it on
PostgreSQL (``python -m provision run --durable --need postgres -- python -m benchmarks.collect``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

import numpy as np  # noqa: E402
from django.db import connection  # noqa: E402
from django.db.models import F  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks import large_jobs  # noqa: E402

if TYPE_CHECKING:
    from tests.support.product.job_setup import World

TARGET = 0.6


@dataclass(frozen=True)
class Measured:
    """Medians over the rounds; ``ratio`` is the median of the rounds' ratios, one statement to collecting."""

    images: int
    one_statement_seconds: float
    collect_seconds: float
    ratio: float


def measure(images: int, rounds: int) -> Measured:
    """Collect jobs of so many images both ways in each round."""
    from tests.support.product.job_setup import new_world

    world = new_world(f"collect {images}")
    large_jobs.captures(world, images)
    pairs = [(timed(lambda: one_statement(world)), timed(lambda: collected(world))) for _ in range(rounds)]
    ratios = [one / ours for one, ours in pairs]
    one, ours = (float(np.median(column)) for column in zip(*pairs, strict=True))
    return Measured(images, one, ours, float(np.median(ratios)))


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


def main() -> int:
    """Measure and print the table; exit 1 if the target is missed on PostgreSQL."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 images only, 3 rounds; else a million, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for images, rounds in ((100_000, 3),) if options.quick else ((100_000, 7), (1_000_000, 3)):
        with large_jobs.test_database():
            rows.append(measure(images, rounds))
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        show(rows)
    return int(connection.vendor == "postgresql" and any(row.ratio < TARGET for row in rows))


def show(rows: list[Measured]) -> None:
    """Print the table."""
    table = Table("images", "one INSERT ... SELECT s", "collect s", "ratio", "target", box=None)
    for row in rows:
        verdict = f">= {TARGET:g} on PostgreSQL: {'met' if row.ratio >= TARGET else 'MISSED'}"
        seconds = (f"{value:.2f}" for value in (row.one_statement_seconds, row.collect_seconds))
        table.add_row(f"{row.images:,}", *seconds, f"{row.ratio:.2f}", verdict)
    Console(width=110, highlight=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
