"""Saving results: exactly once, even if delivered twice."""

import pytest

from ami.jobs.models import JobImage
from ami.jobs.models.states import ImageState
from ami.jobs.services.expected_results import keep_names
from ami.jobs.services.progress import progress
from ami.main.models import Classification, Detection, Occurrence, Taxon
from ami.ml.errors import PipelineNotConfigured
from tests.support.product.job_setup import World
from tests.support.product.results import handle_result
from tests.support.product.stale import marked

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def no_crops(monkeypatch):
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)


def test_a_result_becomes_detections_classifications_and_occurrences(world: World) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    handle_result(job.pk, result=world.found(capture, boxes=3))
    assert Detection.objects.count() == Classification.objects.count() == Occurrence.objects.count() == 3
    assert Occurrence.objects.filter(determination__name="Noctua pronuba", determination_score=0.9).count() == 3
    job.refresh_from_db()
    assert job.status == "SUCCESS"
    assert [stage["progress"] for stage in progress(job)["stages"]] == [1.0, 1.0, 1.0]


def test_incident_28_a_replayed_result_adds_nothing_and_counts_once(world: World) -> None:
    captures = world.captures(2)
    job = world.running(captures)
    for _ in range(3):
        handle_result(job.pk, result=world.found(captures[0], boxes=2))
    assert Detection.objects.count() == Classification.objects.count() == Occurrence.objects.count() == 2
    row = JobImage.objects.get(job=job, source_image=captures[0])
    assert (row.detections_count, row.classifications_count) == (2, 2)


def test_incident_44_nothing_found_leaves_one_null_marker_and_no_occurrence(world: World) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    for _ in range(2):
        handle_result(job.pk, result=world.found(capture, boxes=0))
    assert Detection.objects.filter(bbox__isnull=True).count() == Detection.objects.count() == 1
    assert not Occurrence.objects.exists()


def test_incident_44_failed_save_leaves_the_image_unprocessed(world: World, monkeypatch) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])

    def refuse(*args, **kwargs):
        raise RuntimeError("half way")

    monkeypatch.setattr("ami.ml.services.image_results.save_occurrences", refuse)
    with pytest.raises(RuntimeError):
        handle_result(job.pk, result=world.found(capture))
    assert not Detection.objects.exists()
    assert JobImage.objects.get(job=job).state == ImageState.PUBLISHED


def test_hazard_5_a_result_about_no_image_of_the_job_recounts_nothing(world: World) -> None:
    captures = world.captures(2)
    job = world.running(captures[:1])
    handle_result(job.pk, result=world.found(captures[1]))
    assert not Detection.objects.exists()
    assert not marked()


def test_hazard_6_an_error_without_image_id_settles_the_image_of_its_delivery(world: World) -> None:
    captures = world.captures(2)
    job = world.running(captures)
    JobImage.objects.filter(source_image=captures[0]).update(reply_subject="$JS.ACK.a.b.1.2.3.4.5")
    handle_result(job.pk, reply_subject="$JS.ACK.a.b.1.2.3.4.5", result={"error": "out of memory"})
    assert JobImage.objects.get(source_image=captures[0]).error == "out of memory"
    assert JobImage.objects.get(source_image=captures[0]).state == ImageState.FAILED


def test_hazard_6_error_without_an_image_is_logged_on_the_job(world: World) -> None:
    job = world.running(world.captures(1))
    handle_result(job.pk, result={"error": "who knows"})
    assert job.log_entries.filter(level="ERROR", message__contains="who knows").exists()


def test_a_name_that_is_registered_no_longer_fails_the_task_and_saves_nothing(world: World) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    keep_names(world.claim(job))
    world.pipeline.algorithms.remove(world.classifier)
    world.classifier.delete()
    with pytest.raises(PipelineNotConfigured, match=world.classifier.key):
        handle_result(job.pk, result=world.found(capture))
    assert not Detection.objects.exists()


def test_a_time_without_a_zone_is_the_stations(world: World) -> None:
    [capture] = world.captures(1)
    handle_result(world.running([capture]).pk, result=world.found(capture))
    # New York in June is four hours behind UTC.
    assert Detection.objects.get().detection_time.isoformat() == "2026-06-02T02:00:00+00:00"


def test_a_better_classification_in_one_result_wins_and_another_job_replaces_it(world: World) -> None:
    [capture] = world.captures(1)
    result, better = world.found(capture, label="A", score=0.6), world.found(capture, label="B", score=0.8)
    for one, two in zip(result["detections"], better["detections"], strict=True):
        one["classifications"] += two["classifications"]
    handle_result(world.running([capture]).pk, result=result)
    assert Classification.objects.get().taxon.name == "B"
    handle_result(world.running([capture]).pk, result=world.found(capture, label="C", score=0.5))
    assert Classification.objects.current().get().taxon.name == "C"
    assert Occurrence.objects.get().determination.name == "C"
    assert set(Taxon.objects.values_list("name", flat=True)) == {"A", "B", "C"}


def test_late_result_of_a_lost_image_is_saved(world: World) -> None:
    captures = world.captures(3)
    job = world.running(captures)
    JobImage.objects.filter(source_image=captures[0]).update(state=ImageState.FAILED, error="lost after 2 deliveries")
    handle_result(job.pk, result=world.found(captures[0]))
    assert JobImage.objects.get(source_image=captures[0]).state == ImageState.PROCESSED


MOST_QUERIES = 45
"""Maximum number of queries for one result of one image, independent of the size of the job."""


def test_incident_37_queries_per_result_do_not_grow_with_the_job(world: World, django_assert_max_num_queries) -> None:
    captures = world.captures(12)
    job = world.running(captures)
    counts = []
    for capture in (captures[0], captures[1], captures[10]):
        with django_assert_max_num_queries(MOST_QUERIES) as asked:
            handle_result(job.pk, result=world.found(capture, boxes=10))
        counts.append(len(asked))
    for capture in captures[2:10]:
        handle_result(job.pk, result=world.found(capture, boxes=10))
    # The first one also meets its taxon for the first time.
    assert counts[1] == counts[2] <= counts[0]


def test_incident_37_no_query_cache_is_installed(settings) -> None:
    from django.db import models

    caches = ("cacheops", "cachalot", "cache_machine", "caching", "johnny")
    assert [app for app in settings.INSTALLED_APPS if app.startswith(caches)] == []
    for model in (Detection, Classification, Occurrence, JobImage):
        queryset = type(model._default_manager.all())
        assert queryset._fetch_all is models.QuerySet._fetch_all
        assert queryset.update is models.QuerySet.update


@pytest.mark.parametrize("spelled", ["0{}", "+{}", " {}", "{}.0"])
def test_noncanonical_image_key_is_skipped_without_an_error(world: World, spelled) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    found = world.found(capture)
    odd = spelled.format(capture.pk)
    for row in found["source_images"]:
        row["id"] = odd
    for row in found["detections"]:
        row["source_image_id"] = odd
    handle_result(job.pk, result=found)
    assert not Detection.objects.exists()
