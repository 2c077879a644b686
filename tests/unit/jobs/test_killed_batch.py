"""A batch whose process is killed at any statement, and batches at once: the next delivery leaves each row once."""

import os
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import ingest, stored_results
from ami.main.models import Classification, Detection, Occurrence, Taxon
from ami.ml.tasks import create_detection_images
from tests.support.killed_statement import FORK, killed_at
from tests.support.product.job_setup import World, new_world
from tests.support.product.result_messages import keep_result_messages

pytestmark = pytest.mark.sqlite

BOTH_IMAGES, BOTH_BOXES, BOTH_TURNS = 12, 10, 12
"""Enough rows for a deadlock in most runs, if the two processes wrote them in different orders."""


@pytest.fixture
def world(transactional_db) -> World:
    return new_world()


@pytest.fixture
def published(monkeypatch) -> list[dict[str, Any]]:
    keep_result_messages(monkeypatch)
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(create_detection_images, "apply_async", lambda kwargs, **_: messages.append(kwargs))
    return messages


def stored(world: World, job: Job, captures: list[Any]) -> list[int]:
    """Store results with boxes, one without and one error."""
    results = [world.found(c, boxes=index % 3, label=f"Moth {index % 2}") for index, c in enumerate(captures)]
    results[-1] = {"error": "unreadable", "image_id": str(captures[-1].pk)}
    return [stored_results.store(job, f"r{index}", result).pk for index, result in enumerate(results)]


def assert_saved_once(job: Job, images: int, boxes: int) -> None:
    assert Detection.objects.real().count() == Classification.objects.count() == Occurrence.objects.count() == boxes
    assert Occurrence.objects.filter(determination_score=0.9).count() == boxes
    rows = JobImage.objects.filter(job=job)
    assert sum(rows.values_list("detections_count", flat=True)) == boxes
    assert sorted(rows.values_list("state", flat=True)) == [ImageState.FAILED] + [ImageState.PROCESSED] * (images - 1)
    assert not StoredResult.objects.filter(handled_at=None).exists()
    assert Job.objects.get(pk=job.pk).status == JobStatus.SUCCESS


def test_a_batch_killed_at_any_statement_is_saved_exactly_once(world: World, published) -> None:
    captures = world.captures(6)
    statement, killed = 0, True
    while killed:
        JobImage.objects.all().delete()
        Detection.objects.all().delete()
        Taxon.objects.all().delete()
        job = world.running(captures)
        keys = stored(world, job, captures)
        killed = killed_at(statement, partial(ingest.handle_batch, job.pk, keys))
        processed = JobImage.objects.filter(job=job, state=ImageState.PROCESSED).count()
        assert processed in (0, 5), statement
        assert StoredResult.objects.filter(job=job, handled_at=None).count() == (0 if processed else 6)
        published.clear()
        ingest.handle_batch(job.pk, keys)
        assert_saved_once(job, 6, 4)
        expected = [captures[n].pk for n in (1, 2, 4)]
        assert published == [{"source_image_ids": expected, "project_id": world.project.pk}]
        statement += 1
        StoredResult.objects.all().delete()
    assert statement > 15


def test_batches_of_the_same_images_at_once_do_not_deadlock(world: World, published) -> None:
    """Two processes save the same images of two jobs again and again, in opposite orders."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time, which locks no rows")
    captures = world.captures(BOTH_IMAGES)
    jobs = [world.running(captures) for _ in range(2)]
    results = [
        [world.found(c, boxes=BOTH_BOXES, label=f"Moth {n % 3}", score=0.9 - n / 100) for n in range(4)]
        for c in captures
    ]
    orders = results, [each[::-1] for each in results[::-1]]
    together = FORK.Barrier(2)
    connections.close_all()
    children = [
        FORK.Process(target=partial(_save_again_and_again, together, job.pk, order))
        for job, order in zip(jobs, orders, strict=True)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(timeout=120)
    assert [child.exitcode for child in children] == [0, 0]
    boxes = BOTH_IMAGES * BOTH_BOXES
    assert Detection.objects.count() == Occurrence.objects.count() == boxes
    # Whichever came first, the older job's rows are history.
    by_job = Classification.objects.order_by("job_id", "is_current").values_list("job_id", "is_current")
    assert list(by_job) == [(jobs[0].pk, False)] * boxes + [(jobs[1].pk, True)] * boxes
    for occurrence in Occurrence.objects.select_related("detection"):
        [classification] = occurrence.detection.classifications.current()
        assert (occurrence.determination_id, occurrence.determination_score) == (
            classification.taxon_id,
            classification.score,
        )


def _save_again_and_again(together: Any, job_id: int, results: list[list[dict[str, Any]]]) -> None:
    """Save a batch for each place in the lists, with the other process; a deadlock ends this one with an error."""
    job = Job.objects.get(pk=job_id)
    for turn in range(BOTH_TURNS):
        rows = [stored_results.store(job, f"{turn}", each[turn % 4] | {"total_time": turn}) for each in results]
        together.wait(timeout=60)
        ingest.handle_batch(job_id, [row.pk for row in rows])
    os._exit(0)
