"""What the periodic audits cost, and the counter of unrouted tasks.

``audit_jobs`` over running pull jobs, each with a stream: the reference is one request after the other for each job's
consumer on a connection of bare nats-py; it was 0.5 s for each job. ``audit_data_integrity`` over a job of many images:
one run of its slices, beside one count of everything. The counter: processes that count the same task, beside the same
processes that update its row at each run.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import nats
from django.conf import settings
from django.db import connections
from django.db.models import F
from django.utils import timezone

from benchmarks.frame import Figure, test_database
from benchmarks.jobs import large_jobs

if TYPE_CHECKING:
    from tests.support.product.job_setup import World

CHILDREN = 4
NAME = "other.project.task"


def seconds_of(work: Callable[[], Any]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def audit_of_jobs(world: World, jobs: int) -> Figure:
    """Audit so many running jobs with streams."""
    from ami.jobs.models import Job
    from ami.jobs.services import audits, jetstream

    made = [world.running(world.captures(1)).pk for _ in range(jobs)]
    for pk in made:
        jetstream.create_stream(pk)
    try:
        audits.audit_jobs()
        ours = seconds_of(audits.audit_jobs)
        bare = asyncio.run(one_by_one(made))
    finally:
        for pk in made:
            jetstream.delete_job(pk)
        Job.objects.all().delete()
    what, limit = f"audit_jobs, {jobs} running jobs", 0.05 * jobs + 1
    return Figure(what, "s", ours, "a request per job, one by one", bare, ours / bare, at_most=limit, of_value=True)


async def one_by_one(jobs: list[int]) -> float:
    """Return the seconds of asking for each job's consumer, one after the other."""
    from ami.jobs.services.jetstream import names

    client = await nats.connect(settings.NATS_URL)
    js = client.jetstream()
    began = time.perf_counter()
    for pk in jobs:
        await js.consumer_info(names.stream(pk), names.consumer(pk))
    seconds = time.perf_counter() - began
    await client.close()
    return seconds


def integrity(world: World, images: int) -> Figure:
    """Run the audit of integrity once over a job of so many images, beside one count of all of its rules."""
    from ami.jobs.models import JobImage
    from ami.jobs.models.states import ImageState
    from ami.jobs.services import audits
    from ami.jobs.services.audits import data_integrity
    from ami.jobs.services.insert_select import insert_select
    from ami.main.models import SourceImage

    large_jobs.captures(world, images)
    job = large_jobs.started_job(world)
    values = {"job_id": job.pk, "source_image_id": F("pk"), "state": ImageState.PROCESSED}
    insert_select(JobImage, SourceImage.objects.all(), **values)
    large_jobs.analyze()
    whole = seconds_of(lambda: [broken.count() for broken in data_integrity._rules().values()])
    run = seconds_of(audits.audit_data_integrity)
    what, target = f"audit_data_integrity, {images:,} images", None if images < 200_000 else 0.5
    return Figure(what, "s", run, "everything at once", whole, run / whole, at_most=target)


def counter(seconds: float) -> Figure:
    """Count one task in several processes for a while, both ways."""
    counted = together(by_process, seconds)
    updated = together(by_row, seconds)
    what, reference = f"unrouted tasks, {CHILDREN} processes", "a row updated by each"
    return Figure(what, "/s", counted, reference, updated, counted / updated, at_least=5)


def by_process() -> Callable[[], None]:
    """Return what counts a task as a child does."""
    from ami.telemetry import unrouted_tasks

    def count() -> None:
        unrouted_tasks.counts.add(NAME, 1, timezone.now())
        unrouted_tasks.after_task()

    return count


def by_row() -> Callable[[], None]:
    """Return what updates the task's row."""
    from ami.telemetry.models import UnroutedTask

    UnroutedTask.objects.get_or_create(name=NAME, defaults={"last_run_at": timezone.now()})

    def count() -> None:
        UnroutedTask.objects.filter(name=NAME).update(runs=F("runs") + 1, last_run_at=timezone.now())

    return count


def together(make: Callable[[], Callable[[], None]], seconds: float) -> float:
    """Return how often all processes together ran what ``make`` returns, per second."""
    connections.close_all()
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()
    children = [context.Process(target=repeat, args=(make, seconds, answers)) for _ in range(CHILDREN)]
    for child in children:
        child.start()
    total = sum(answers.get(timeout=seconds + 60) for _ in children)
    for child in children:
        child.join()
    return float(total / seconds)


def repeat(make: Callable[[], Callable[[], None]], seconds: float, answers: Any) -> None:
    """Repeat something for a while and tell how often that was."""
    run, times = make(), 0
    ends_at = time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        run()
        times += 1
    answers.put(times)


def figures(quick: bool) -> Iterator[Figure]:
    """Yield the audits over few jobs and many, over many images, and the counter."""
    with test_database():
        from ami.jobs.services import jetstream
        from tests.support.product.job_setup import new_world

        world = new_world("audits")
        for jobs in (10, 100) if quick else (10, 480):
            yield audit_of_jobs(world, jobs)
        yield integrity(world, 100_000 if quick else 1_000_000)
        yield counter(3 if quick else 10)
        jetstream.close()
