"""Batches of stored results: one message, one transaction, one by one only where one of them is bad."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.jobs.errors import ResultMissing
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import ingest, job_results, result_batches, result_bodies, stored_results
from ami.jobs.tasks import process_nats_pipeline_results
from ami.main.models import Classification, Detection, Occurrence
from tests.support.product.job_setup import World
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite

ONE, MANY = "ami.jobs.tasks.process_nats_pipeline_result", "ami.jobs.tasks.process_nats_pipeline_results"


@pytest.fixture
def published(monkeypatch) -> list[tuple[str, dict[str, Any]]]:
    messages: list[tuple[str, dict[str, Any]]] = []
    for name in (ONE, MANY):
        monkeypatch.setattr(
            f"{name}.apply_async", lambda kwargs, name=name, **options: messages.append((name, kwargs | options))
        )
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)
    return messages


def stored(job: Job, results: list[dict[str, Any]]) -> list[StoredResult]:
    items = [(f"r{index}", result) for index, result in enumerate(results)]
    return [stored_results.store(job, *item) for item in items]


def handle(job: Job, rows: list[StoredResult]) -> None:
    ingest.handle_batch(job.pk, [row.pk for row in rows])


@pytest.mark.django_db
def test_results_of_one_job_are_one_message_and_each_has_its_own_id(
    world: World, published, django_capture_on_commit_callbacks
) -> None:
    captures = world.captures(3)
    job, other = world.running(captures), world.running(captures)
    rows = [*stored(job, [world.found(c) for c in captures]), *stored(other, [world.found(captures[0])])]
    with django_capture_on_commit_callbacks(execute=True):
        ids = result_batches.publish([*rows, rows[0]])
    [(many, batch), (one, alone)] = published
    assert (many, batch["result_ids"], batch["project_id"]) == (MANY, [row.pk for row in rows[:3]], job.project_id)
    assert (one, alone["result_ids"], alone["task_id"]) == (MANY, [rows[3].pk], ids[3])
    assert (len(set(ids)), ids[0]) == (4, ids[4])
    known = dict(StoredResult.objects.values_list("task_id", "batch_id"))
    assert [known[each] for each in ids] == [batch["task_id"]] * 3 + [ids[3], batch["task_id"]]


@pytest.mark.parametrize(("most", "sizes"), [({"MOST_RESULTS": 2}, [2, 2, 1]), ({"MOST_BYTES": 1500}, [2, 2, 1])])
@pytest.mark.django_db
def test_batches_are_bounded_by_count_and_by_bytes(world: World, monkeypatch, most, sizes) -> None:
    for name, value in most.items():
        monkeypatch.setattr(result_batches, name, value)
    captures = world.captures(5)
    rows = stored(world.running(captures), [world.found(c) for c in captures])
    assert [len(batch) for batch in result_batches.batches(rows)] == sizes
    StoredResult.objects.update(text_bytes=None)
    assert [len(batch) for batch in result_batches.batches(StoredResult.objects.all())] == [1] * 5


@pytest.mark.django_db
def test_a_batch_leaves_the_rows_of_its_results_one_by_one(world: World, published) -> None:
    def rows() -> list[Any]:
        """Return what both jobs have left, without keys and times."""
        detections = Detection.objects.order_by("source_image__path", "bbox_key")
        names = ("bbox", "bbox_key", "timestamp", "detection_time", "occurrence__determination__name")
        more = ("occurrence__determination_score", "classifications__scores", "classifications__score")
        images = JobImage.objects.order_by("source_image__path")
        counts = images.values_list("state", "detections_count", "classifications_count", "error")
        return [*detections.values_list("source_image__path", *names, *more), *counts]

    captures = world.captures(6)
    found = [world.found(c, boxes=index % 3, label=f"Moth {index % 2}") for index, c in enumerate(captures)]
    found[4] = {"error": "unreadable", "image_id": str(captures[4].pk)}
    job = world.running(captures)
    for result in stored(job, found):
        ingest.handle(job.pk, result_key=result.key, reply_subject="r")
    alone = rows()
    JobImage.objects.all().delete()
    Detection.objects.all().delete()
    job = world.running(captures)
    handle(job, batch := stored(job, found))
    assert rows() == alone
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS
    assert not StoredResult.objects.filter(pk__in=[row.pk for row in batch], handled_at=None).exists()


@pytest.mark.parametrize("wrong", ["unregistered", "shape", "body"])
@pytest.mark.django_db
def test_a_bad_result_gets_a_message_of_its_own_and_the_others_are_saved(
    world: World, published, wrong, django_capture_on_commit_callbacks
) -> None:
    captures = world.captures(4)
    job = world.running(captures)
    found = [world.found(c) for c in captures]
    if wrong == "unregistered":
        names = {"slugs": [world.pipeline.slug], "algorithms": ["gone"]}
        Job.objects.filter(pk=job.pk).update(cursor={"pipeline": names})
        found[1]["detections"][0]["algorithm"]["key"] = "gone"
    elif wrong == "shape":
        found[1]["pipeline"] = {}
    rows = stored(job, found)
    if wrong == "body":
        StoredResult.objects.filter(pk=rows[1].pk).update(body=b"x")
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            handle(job, rows)
    assert [(name, message["result_key"]) for name, message in published] == [(ONE, rows[1].key)] * 2
    assert Detection.objects.count() == Classification.objects.count() == Occurrence.objects.count() == 3
    waiting = StoredResult.objects.get(handled_at=None)
    assert (waiting.pk, JobImage.objects.get(state=ImageState.PUBLISHED).source_image_id) == (
        rows[1].pk,
        captures[1].pk,
    )


@pytest.mark.django_db
def test_first_of_two_results_of_one_image_counts(world: World, published) -> None:
    first, second = world.captures(2)
    job = world.running([first, second])
    found = [world.found(first, label="A"), world.found(second), world.found(first, label="B", score=0.4)]
    handle(job, stored(job, found))
    assert Detection.objects.count() == Occurrence.objects.count() == 2
    assert Occurrence.objects.get(detection__source_image=first).determination.name == "A"
    assert StoredResult.objects.exclude(handled_at=None).count() == 3


@pytest.mark.django_db
def test_queries_of_a_batch_do_not_grow_with_it(world: World, published) -> None:
    captures = world.captures(24)
    job = world.running(captures)
    counts = []
    for part in (captures[:2], captures[2:4], captures[4:22]):
        rows = stored(job, [world.found(c, boxes=3) for c in part])
        with CaptureQueriesContext(connection) as asked:
            handle(job, rows)
        counts.append(len(asked))
    assert counts[1] == counts[2] <= 30, counts


@pytest.mark.django_db
def test_a_batch_that_ended_its_process_is_split(world: World, published, django_capture_on_commit_callbacks) -> None:
    captures = world.captures(3)
    job = world.running(captures)
    rows = stored(job, [world.found(c) for c in captures])
    ingest.handle(job.pk, result_key=rows[0].key)
    message = {"job_id": job.pk, "result_ids": [row.pk for row in rows]}
    with django_capture_on_commit_callbacks(execute=True):
        process_nats_pipeline_results.apply(kwargs=message, retries=1, throw=True)
    assert [message["result_key"] for _, message in published] == [rows[1].key, rows[2].key]
    process_nats_pipeline_results.apply(kwargs={**message, "tries": 1}, retries=1, throw=True)
    assert not StoredResult.objects.filter(handled_at=None).exists()


@pytest.mark.django_db
def test_a_buried_batch_is_noted_on_its_results(world: World, published, monkeypatch) -> None:
    captures = world.captures(2)
    job = world.running(captures)
    rows = stored(job, [world.found(c) for c in captures])

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(ingest, "handle_batch", fail)
    message = {"job_id": job.pk, "result_ids": [row.pk for row in rows]}
    assert process_nats_pipeline_results.apply(kwargs=message, throw=False).state == "FAILURE"
    assert set(StoredResult.objects.values_list("error", flat=True)) == {"RuntimeError: no memory"}


@pytest.mark.django_db
def test_large_response_is_saved_in_several_transactions(world: World, published, monkeypatch) -> None:
    monkeypatch.setattr(job_results, "MOST_DETECTIONS", 3)
    captures = world.captures(5)
    job = world.running(captures)
    handle_result(job.pk, result=world.found(*captures, boxes=2))
    assert Detection.objects.count() == 10
    assert JobImage.objects.filter(state=ImageState.PROCESSED, detections_count=2).count() == 5


@pytest.mark.django_db
def test_small_bodies_are_in_their_rows_and_large_ones_in_the_storage(world: World, monkeypatch) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    result = world.found(capture)
    small = stored_results.store(job, "small", result)
    monkeypatch.setattr(result_bodies, "MOST_ROW_BYTES", 10)
    large = stored_results.store(job, "large", result)
    rows = StoredResult.objects.in_bulk([small.pk, large.pk])
    kept = [rows[each.pk] for each in (small, large)]
    assert [(bool(row.body), bool(row.name)) for row in kept] == [(True, False), (False, True)]
    assert {json.loads(stored_results.load(row))["reply_subject"] for row in rows.values()} == {"small", "large"}
    StoredResult.objects.update(handled_at=timezone.now() - timedelta(days=2))
    assert stored_results.purge() == 2
    assert not storages["results"].exists(large.name)


@pytest.fixture(params=["row", "storage"])
def a_result(request, world: World, monkeypatch) -> StoredResult:
    """A stored result whose body is in its row, or in the storage."""
    if request.param == "storage":
        monkeypatch.setattr(result_bodies, "MOST_ROW_BYTES", 0)
    [capture] = world.captures(1)
    return StoredResult.objects.get(pk=stored_results.store(world.running([capture]), "r", world.found(capture)).pk)


@pytest.mark.django_db
@pytest.mark.parametrize("damage", [lambda body: body[:-10], lambda body: b"", lambda body: b"x" + body])
def test_a_damaged_body_is_missing(a_result: StoredResult, damage) -> None:
    if a_result.body is None:
        with storages["results"].open(a_result.name) as file:
            whole = file.read()
        a_result.name = storages["results"].save(a_result.name, ContentFile(damage(whole)))
    else:
        a_result.body = damage(bytes(a_result.body))
    with pytest.raises(ResultMissing):
        stored_results.load(a_result)


@pytest.mark.django_db
def test_a_body_above_the_cap_is_not_unpacked(a_result: StoredResult, settings, monkeypatch) -> None:
    for chunk in (*range(1, 60), 10**6):
        monkeypatch.setattr(result_bodies, "CHUNK_BYTES", chunk)
        assert len(stored_results.load(a_result)) == a_result.text_bytes
    settings.ANTENNA_RESULT_MAX_BYTES = a_result.text_bytes - 1
    with pytest.raises(ResultMissing, match="larger than"):
        stored_results.load(a_result)
