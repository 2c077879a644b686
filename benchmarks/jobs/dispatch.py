"""Dispatching a job's images, beside publishing the same messages with bare nats-py.

Dispatching selects the pending images, publishes them, and marks them. The reference publishes the same bodies, with
the same headers, to a stream of the same kind: ``JetStreamContext.publish`` 200 at a time, each awaited. They
alternate.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import nats
import numpy as np
from django.conf import settings

from benchmarks.frame import Figure, test_database
from benchmarks.jobs import large_jobs

if TYPE_CHECKING:
    from ami.jobs.models import Job
    from tests.support.product.job_setup import World

TARGET = 0.5
AT_ONCE = 200


def measure(images: int, rounds: int) -> Figure:
    """Publish so many images both ways in each round."""
    from ami.jobs.services import jetstream
    from tests.support.product.job_setup import new_world

    world = new_world("dispatch")
    large_jobs.captures(world, images)
    pairs = []
    for _ in range(rounds):
        large_jobs.forget_images()
        job = collected(world)
        bare = asyncio.run(published(job, bodies(job)))
        pairs.append((images / bare, images / dispatched(job)))
        jetstream.delete_job(job.pk)
    jetstream.close()
    bare, ours = (float(np.median(column)) for column in zip(*pairs, strict=True))
    ratio = float(np.median([ours / bare for bare, ours in pairs]))
    return Figure(f"dispatch {images:,} images", "/s", ours, "bare nats-py", bare, ratio, at_least=TARGET)


def collected(world: World) -> Job:
    """Return a job with all its images pending."""
    from ami.jobs.services import job_images, job_slice
    from tests.support.product.job_setup import Now

    job = large_jobs.started_job(world)
    assert job_slice.claim(job, "benchmark")
    assert job_images.collect(job, Now())
    large_jobs.analyze()
    return job


def bodies(job: Job) -> dict[int, bytes]:
    """Return the message of each image."""
    from ami.jobs.models import JobImage
    from ami.jobs.services.pull_dispatch import payload

    rows = JobImage.objects.filter(job=job).select_related("source_image")
    urls = {row.source_image_id: row.source_image.public_url() for row in rows}
    return {pk: json.dumps(payload(pk, url)).encode() for pk, url in urls.items()}


async def published(job: Job, messages: dict[int, bytes]) -> float:
    """Return the seconds that bare nats-py takes for the messages, on a stream like the job's."""
    client = await nats.connect(settings.NATS_URL)
    js = client.jetstream(timeout=60)
    name = f"bench_{job.pk}"
    await js.add_stream(name=name, subjects=[name], max_age=24 * 3600, duplicate_window=3600)

    async def one(image: int, body: bytes) -> Any:
        return await js.publish(name, body, stream=name, headers={"Nats-Msg-Id": f"job-{job.pk}-{image}"})

    items = list(messages.items())
    began = time.perf_counter()
    for start in range(0, len(items), AT_ONCE):
        await asyncio.gather(*(one(*item) for item in items[start : start + AT_ONCE]))
    seconds = time.perf_counter() - began
    await js.delete_stream(name)
    await client.close()
    return seconds


def dispatched(job: Job) -> float:
    """Return the seconds of dispatching the job."""
    from ami.jobs.models.states import ImageState
    from ami.jobs.services import pull_dispatch
    from tests.support.product.job_setup import Now

    began = time.perf_counter()
    assert pull_dispatch.dispatch(job, Now())
    seconds = time.perf_counter() - began
    assert not job.images.exclude(state=ImageState.PUBLISHED).exists()
    return seconds


def figures(quick: bool) -> Iterator[Figure]:
    """Yield how fast a job's images are dispatched."""
    with test_database():
        yield measure(*((20_000, 3) if quick else (100_000, 7)))
