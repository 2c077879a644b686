"""Classifying again keeps what was there: a row per detection, algorithm and job, of which one is current."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.test import APIClient

from ami.exports.services.formats.occurrences_json import OccurrencesJson
from ami.exports.services.formats.row import COLUMNS, records
from ami.jobs.models import Job
from ami.jobs.services.audits.data_integrity import audit_data_integrity
from ami.main.models import Classification, Detection, Occurrence, SourceImage
from ami.main.services.determinations import determine
from tests.support.product.job_setup import World
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def no_crops(monkeypatch):
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)


def save(world: World, job: Job, capture: SourceImage, label: str, score: float, boxes: int = 1) -> None:
    handle_result(job.pk, result=world.found(capture, label=label, score=score, boxes=boxes))


def rows() -> list[tuple[Any, ...]]:
    return list(Classification.objects.order_by("pk").values_list("job_id", "taxon__name", "score", "is_current"))


def determination() -> tuple[str | None, float | None]:
    return Occurrence.objects.values_list("determination__name", "determination_score").get()


def client_of(world: World) -> APIClient:
    client = APIClient()
    client.force_authenticate(get_user_model().objects.get(pk=world.user.pk))
    return client


def test_newer_job_becomes_current_and_the_older_row_stays(world: World) -> None:
    [capture] = world.captures(1)
    older, newer = world.running([capture]), world.running([capture])
    save(world, older, capture, "A", 0.9)
    before = Classification.objects.values().get()
    save(world, newer, capture, "B", 0.6)
    assert rows() == [(older.pk, "A", 0.9, False), (newer.pk, "B", 0.6, True)]
    assert Classification.objects.values().get(job_id=older.pk) == {**before, "is_current": False}
    assert determination() == ("B", 0.6)
    assert Detection.objects.count() == 1


def test_late_result_of_an_older_job_is_history_at_once(world: World) -> None:
    [capture] = world.captures(1)
    older, newer = world.running([capture]), world.running([capture])
    save(world, newer, capture, "B", 0.6)
    save(world, older, capture, "A", 0.9)
    assert rows() == [(newer.pk, "B", 0.6, True), (older.pk, "A", 0.9, False)]
    assert determination() == ("B", 0.6)


@pytest.mark.parametrize("again", ["older", "newer"])
def test_redelivered_result_changes_nothing(world: World, again: str) -> None:
    [capture] = world.captures(1)
    jobs = {"older": world.running([capture]), "newer": world.running([capture])}
    for name, label, score in (("older", "A", 0.9), ("newer", "B", 0.6)):
        save(world, jobs[name], capture, label, score, boxes=2)
    before = list(Classification.objects.order_by("pk").values())
    occurrences = list(Occurrence.objects.order_by("pk").values())
    save(world, jobs[again], capture, "C", 0.99, boxes=2)
    assert list(Classification.objects.order_by("pk").values()) == before
    assert list(Occurrence.objects.order_by("pk").values()) == occurrences


def test_row_from_before_jobs_were_recorded_becomes_history(world: World) -> None:
    [capture] = world.captures(1)
    save(world, world.running([capture]), capture, "A", 0.9)
    Classification.objects.update(job=None)
    job = world.running([capture])
    save(world, job, capture, "B", 0.6)
    assert rows() == [(None, "A", 0.9, False), (job.pk, "B", 0.6, True)]


def test_job_that_starts_over_replaces_its_own_rows_and_no_others(world: World) -> None:
    [capture] = world.captures(1)
    older, newer = world.running([capture]), world.running([capture])
    save(world, older, capture, "A", 0.9)
    save(world, newer, capture, "B", 0.6)
    Job.objects.filter(pk=newer.pk).update(started_at=timezone.now())
    save(world, newer, capture, "C", 0.7)
    assert rows() == [(older.pk, "A", 0.9, False), (newer.pk, "C", 0.7, True)]
    assert determination() == ("C", 0.7)


def test_deleted_job_leaves_its_history(world: World) -> None:
    [capture] = world.captures(1)
    jobs = [world.running([capture]) for _ in range(3)]
    for number, job in enumerate(jobs):
        save(world, job, capture, f"T{number}", 0.5)
    keys = [job.pk for job in jobs]
    jobs[0].delete()
    jobs[1].delete()
    assert [row[0] for row in rows()] == keys


def test_history_counts_nowhere(world: World) -> None:
    [capture] = world.captures(1)
    save(world, world.running([capture]), capture, "A", 0.99)
    save(world, world.running([capture]), capture, "B", 0.6)
    occurrence = Occurrence.objects.get()
    assert not determine([occurrence.pk])
    [record] = records(Occurrence.objects.all(), 10)
    best = dict(zip(COLUMNS, record, strict=True))
    assert (best["best_machine_prediction_name"], best["best_machine_prediction_score"]) == ("B", 0.6)
    assert b'"A"' not in OccurrencesJson().batch(Occurrence.objects.all(), 10).content
    client = client_of(world)
    for path in ("occurrences/", f"occurrences/{occurrence.pk}/", "detections/"):
        found = client.get(f"/api/v2/{path}").json()
        [found] = found.get("results", [found])
        detection = found.get("detection", found)
        assert [each["taxon"]["name"] for each in detection["classifications"]] == ["B"], path
    Classification.objects.filter(is_current=True).update(taxon=None)
    determine([occurrence.pk])
    assert determination() == (None, None)
    assert audit_data_integrity()["occurrences_without_determination"] == 0


def test_single_detection_shows_its_history(world: World) -> None:
    [capture] = world.captures(1)
    older, newer = world.running([capture]), world.running([capture])
    save(world, older, capture, "A", 0.9)
    save(world, newer, capture, "B", 0.6)
    found = client_of(world).get(f"/api/v2/detections/{Detection.objects.get().pk}/").json()
    [history] = found["history"]
    assert (history["taxon"]["name"], history["score"], history["job"]) == ("A", 0.9, older.pk)
    assert [each["taxon"]["name"] for each in found["classifications"]] == ["B"]


@pytest.mark.parametrize("columns", [{"job_id": None}, {"job_id": 7}, {"job_id": 8, "is_current": True}])
def test_database_refuses_a_second_row_of_a_job_and_a_second_current_one(world: World, columns: dict) -> None:
    [capture] = world.captures(1)
    save(world, world.running([capture]), capture, "A", 0.9)
    row = Classification.objects.get()
    Classification.objects.filter(pk=row.pk).update(job_id=columns["job_id"] if columns["job_id"] != 8 else 7)
    new = Classification(detection_id=row.detection_id, algorithm_id=row.algorithm_id)
    for name, value in {"is_current": False, **columns}.items():
        setattr(new, name, value)
    with pytest.raises(IntegrityError), transaction.atomic():
        new.save()
