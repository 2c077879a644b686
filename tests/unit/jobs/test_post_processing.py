"""Post-processing jobs: the filter of small boxes and the mask of classes, started through the API."""

import math
from typing import Any

import pytest
from rest_framework.test import APIClient

from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services import job_slice
from ami.jobs.services.job_slice import Next
from ami.main.models import Classification, Detection, Occurrence, SourceImage, SourceImageCollection, TaxaList, Taxon
from ami.ml.models import Algorithm
from tests.support.product.job_setup import Now, World, new_world
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def no_crops(monkeypatch):
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)


@pytest.fixture
def collection(world: World) -> SourceImageCollection:
    """Three captures of 200 x 120 with two boxes of 30 x 40 each; the classes score 0.9 and 0.1."""
    captures = world.captures(3)
    SourceImage.objects.update(width=200, height=120)
    handle_result(world.running(captures).pk, result=world.found(*captures, boxes=2))
    made = SourceImageCollection.objects.create(name="set", project=world.project, method="manual")
    made.images.set(captures)
    return made


def created(client: APIClient, world: World, task: str, **config: Any):
    body = {"name": "p", "project": world.project.pk, "job_type_key": "post_processing"}
    return client.post("/api/v2/jobs/", body | {"params": {"task": task, "config": config}}, format="json")


def ran(client: APIClient, world: World, task: str, steps: int = 10**9, **config: Any) -> Job:
    """Create a job through the API and run it in slices of so many steps."""
    answer = created(client, world, task, **config)
    assert answer.status_code == 201, answer.content
    job = Job.objects.get(pk=answer.json()["id"])
    for number in range(20):
        if job_slice.run_slice(job, f"owner {number}", Now(steps)) is Next.NOTHING:
            break
        job.refresh_from_db()
    job.refresh_from_db()
    return job


def determinations() -> set[str]:
    return set(Occurrence.objects.values_list("determination__name", flat=True))


def taxa_list(world: World, *names: str) -> TaxaList:
    made = TaxaList.objects.create(name="-".join(names) or "none")
    made.projects.add(world.project)
    made.taxa.set([Taxon.objects.get_or_create(name=name, defaults={"display_name": name})[0] for name in names])
    return made


@pytest.mark.parametrize("steps", [1, 10**9])
def test_small_boxes_are_not_identifiable(world, client, collection, monkeypatch, steps) -> None:
    monkeypatch.setattr("ami.jobs.services.post_processing_jobs.CHUNK", 2)
    large = Detection.objects.order_by("pk").last()
    Detection.objects.filter(pk=large.pk).update(bbox=[0, 0, 200, 120])
    job = ran(client, world, "small_size_filter", steps, source_image_collection_id=collection.pk, size_threshold=0.06)
    assert (job.status, job.result) == (
        JobStatus.SUCCESS,
        {"detections_checked": 6, "detections_flagged": 5, "occurrences_updated": 5},
    )
    assert determinations() == {"Not identifiable", "Noctua pronuba"}
    assert Occurrence.objects.get(detection=large).determination.name == "Noctua pronuba"
    assert Classification.objects.filter(algorithm__key="small_size_filter", job=job).count() == 5


def test_a_lower_threshold_frees_what_an_earlier_run_marked(world, client, collection) -> None:
    for threshold, name in ((0.06, "Not identifiable"), (0.01, "Noctua pronuba"), (0.06, "Not identifiable")):
        ran(client, world, "small_size_filter", source_image_collection_id=collection.pk, size_threshold=threshold)
        assert determinations() == {name}
    assert Classification.objects.filter(algorithm__key="small_size_filter", is_current=True).count() == 6
    assert Classification.objects.filter(algorithm__key="small_size_filter").count() == 12


def test_pictures_of_unknown_size_and_other_occurrences_are_left(world, client, collection) -> None:
    one, other = Occurrence.objects.order_by("pk")[:2]
    ran(client, world, "small_size_filter", occurrence_id=one.pk, size_threshold=0.5)
    SourceImage.objects.update(width=None)
    job = ran(client, world, "small_size_filter", occurrence_id=other.pk, size_threshold=0.5)
    assert job.result["detections_flagged"] == 0
    assert Classification.objects.filter(algorithm__key="small_size_filter").get().detection_id == one.detection_id


@pytest.mark.parametrize("reweight", [True, False])
def test_masked_classes_lose_and_the_original_stays(world, client, collection, reweight) -> None:
    kept = taxa_list(world, "other")
    config = {"taxa_list_id": kept.pk, "algorithm_id": world.classifier.pk, "reweight": reweight}
    job = ran(client, world, "class_masking", source_image_collection_id=collection.pk, **config)
    assert (job.status, job.result["classifications_masked"], job.result["occurrences_updated"]) == ("SUCCESS", 6, 6)
    assert determinations() == {"other"}
    masked = Classification.objects.filter(job=job).first()
    original = masked.applied_to
    assert [round(value, 6) for value in masked.scores] == [0.0, 1.0 if reweight else 0.1]
    assert (original.taxon.name, original.terminal, original.is_current) == ("Noctua pronuba", False, True)
    mode = "reweighted" if reweight else "absolute"
    assert masked.algorithm.key == f"cls-world_filtered_by_taxa_list_{kept.pk}_{mode}"
    assert masked.algorithm.category_map == world.classifier.category_map


def test_mask_is_made_once_and_follows_its_list(world, client, collection) -> None:
    kept = taxa_list(world, "other")
    config = {"taxa_list_id": kept.pk, "algorithm_id": world.classifier.pk}
    for _ in "ab":
        ran(client, world, "class_masking", source_image_collection_id=collection.pk, **config)
    masked = Classification.objects.filter(applied_to__isnull=False)
    assert (masked.count(), masked.filter(is_current=True).count()) == (12, 6)
    kept.taxa.add(Taxon.objects.get(name="Noctua pronuba"))
    ran(client, world, "class_masking", source_image_collection_id=collection.pk, **config)
    assert determinations() == {"Noctua pronuba"}
    assert not masked.filter(is_current=True).exists()
    assert Classification.objects.filter(algorithm=world.classifier, terminal=True).count() == 6


def test_logits_come_before_scores(world, client, collection) -> None:
    Classification.objects.update(logits=[2.0, 1.0], scores=[])
    kept = taxa_list(world, "other")
    config = {"taxa_list_id": kept.pk, "algorithm_id": world.classifier.pk, "reweight": False}
    job = ran(client, world, "class_masking", source_image_collection_id=collection.pk, **config)
    assert Classification.objects.filter(job=job).first().score == pytest.approx(1 / (1 + math.e))


def test_identification_by_a_person_stays(world, client, collection) -> None:
    from ami.main.models import Identification

    occurrence = Occurrence.objects.first()
    mine = Taxon.objects.create(name="Mine", display_name="Mine")
    Identification.objects.create(occurrence=occurrence, user=world.user, taxon=mine)
    ran(client, world, "small_size_filter", source_image_collection_id=collection.pk, size_threshold=0.5)
    occurrence.refresh_from_db()
    assert occurrence.determination == mine


def wrong_configs(world: World, collection: SourceImageCollection) -> list[tuple[Any, str]]:
    scope = {"source_image_collection_id": collection.pk}
    other = new_world("other")
    theirs = SourceImageCollection.objects.create(name="x", project=other.project, method="manual")
    kept = taxa_list(world, "other")
    mask = {**scope, "taxa_list_id": kept.pk, "algorithm_id": world.classifier.pk}
    return [
        ({}, "task"),
        ({"task": "tracking"}, "task"),
        ({"task": "small_size_filter"}, "config"),
        ({"task": "small_size_filter", "config": {**scope, "occurrence_id": 1}}, "config"),
        ({"task": "small_size_filter", "config": {**scope, "size_threshold": 0}}, "config.size_threshold"),
        ({"task": "small_size_filter", "config": {**scope, "size_threshold": 1}}, "config.size_threshold"),
        ({"task": "small_size_filter", "config": {**scope, "treshold": 1}}, "config.treshold"),
        ({"task": "small_size_filter", "config": []}, "config"),
        ({"task": "small_size_filter", "config": "x"}, "config"),
        (
            {"task": "small_size_filter", "config": {"source_image_collection_id": theirs.pk}},
            "config.source_image_collection_id",
        ),
        ({"task": "small_size_filter", "config": {"occurrence_id": 987654321}}, "config.occurrence_id"),
        ({"task": "class_masking", "config": scope}, "config.taxa_list_id"),
        ({"task": "class_masking", "config": {**mask, "algorithm_id": other.classifier.pk}}, "config.algorithm_id"),
        ({"task": "class_masking", "config": {**mask, "algorithm_id": world.detector.pk}}, "config.algorithm_id"),
        ({"task": "class_masking", "config": {**mask, "taxa_list_id": 987654321}}, "config.taxa_list_id"),
    ]


def test_wrong_configuration_is_a_400_that_names_the_key(world, client, collection) -> None:
    body = {"name": "p", "project": world.project.pk, "job_type_key": "post_processing"}
    for params, field in wrong_configs(world, collection):
        answer = client.post("/api/v2/jobs/", body | {"params": params}, format="json")
        assert answer.status_code == 400, params
        assert answer.json()["params"][0].startswith(f"{field}: "), (params, answer.json())
    assert not Job.objects.filter(job_type_key="post_processing").exists()


def test_list_without_any_of_the_classes_fails_the_job_and_changes_nothing(world, client, collection) -> None:
    config = {"taxa_list_id": taxa_list(world, "Idia").pk, "algorithm_id": world.classifier.pk}
    answer = created(client, world, "class_masking", source_image_collection_id=collection.pk, **config)
    job = Job.objects.get(pk=answer.json()["id"])
    with pytest.raises(ValueError, match="has none of the classes"):
        job_slice.run_slice(job, "owner", Now())
    assert determinations() == {"Noctua pronuba"}
    assert not Algorithm.objects.filter(key__contains="filtered_by").exists()
