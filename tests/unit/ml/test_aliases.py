"""A known name and version under another slug or key: the row stays, and both names find it."""

from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from ami.jobs.models import JobImage
from ami.jobs.services import job_slice
from ami.jobs.services.reprocess_jobs import pipeline_for
from ami.main.models import Classification, Detection, Occurrence, Project
from ami.ml.models import Algorithm, AlgorithmAlias, Pipeline, PipelineAlias, ProcessingService, ProjectPipelineConfig
from ami.ml.schemas import PipelineConfigResponse, PipelineResultsResponse
from ami.ml.services import heartbeats
from ami.ml.services.name_lookup import NameLookup
from ami.ml.services.registration import Registered, RegistrationRefused, register_pull_service
from tests.support.product.http_services import push_service, served
from tests.support.product.job_setup import Now, World, new_world
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite

LABELS = ["Noctua pronuba", "other"]


@pytest.fixture(autouse=True)
def no_crops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)


def described(world: World, slug: str, suffix: str = "", labels: list[str] = LABELS, **fields: Any) -> dict[str, Any]:
    """The world's pipeline, with its names and versions, under another slug and keys with a suffix."""
    algorithms = [
        {"name": world.detector.name, "key": f"{world.detector.key}{suffix}", "task_type": "detection"},
        {
            "name": world.classifier.name,
            "key": f"{world.classifier.key}{suffix}",
            "task_type": "classification",
            "category_map": {"data": [], "labels": labels},
        },
    ]
    return {
        "name": world.pipeline.name,
        "slug": slug,
        "version": 1,
        "algorithms": algorithms,
        "stages": [],
        **fields,
    }


def enter(world: World, *configs: dict[str, Any], name: str = "worker") -> Registered:
    return register_pull_service(
        name, world.project.pk, [PipelineConfigResponse.model_validate(config) for config in configs]
    )


def names(world: World) -> dict[str, str]:
    """Every slug and key of the world's project -> the name of the row that it finds."""
    found = {}
    for row in Pipeline.objects.filter(project=world.project):
        found |= dict.fromkeys(row.slugs(), row.name)
    for algorithm in Algorithm.objects.filter(project=world.project):
        found |= dict.fromkeys([algorithm.key, *algorithm.aliases.values_list("key", flat=True)], algorithm.name)
    return found


BEFORE = {"pipe-world": "Pipe world", "det-world": "Det world", "cls-world": "Cls world"}
BOTH = {**BEFORE, "other": "Pipe world", "det-world-2": "Det world", "cls-world-2": "Cls world"}
DETECTOR = {"name": "Another", "key": "another", "task_type": "detection"}

TABLE = [
    ("the same", [("pipe-world", {})], BEFORE, ""),
    ("another slug", [("other", {})], {**BEFORE, "other": "Pipe world"}, ""),
    ("another slug and keys", [("other", {"suffix": "-2"})], BOTH, ""),
    ("twice", [("other", {"suffix": "-2"})] * 2, BOTH, "described more than once"),
    ("both slugs in one body", [("pipe-world", {}), ("other", {"suffix": "-2"})], BOTH, ""),
    ("another version", [("other", {"version": 2})], {**BEFORE, "other": "Pipe world"}, ""),
    (
        "a third slug",
        [("other", {"suffix": "-2"}), ("third", {"suffix": "-2"})],
        {**BOTH, "third": "Pipe world"},
        "",
    ),
    (
        "the alias with a new name",
        [("other", {}), ("second", {"name": "Second"})],
        {**BEFORE, "other": "Pipe world", "second": "Second"},
        "",
    ),
    (
        "another detector",
        [("other", {"algorithms": [DETECTOR]})],
        {**BEFORE, "other": "Pipe world", "another": "Another"},
        "has another detector",
    ),
]


@pytest.mark.parametrize(("registered", "after", "not_applied"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_names_after_a_registration(
    world: World, registered: list[tuple[str, dict[str, Any]]], after: dict[str, str], not_applied: str
) -> None:
    answer = enter(world, *(described(world, slug, **fields) for slug, fields in registered))
    assert names(world) == after
    assert not_applied in " ".join(answer.not_applied)
    assert bool(not_applied) == bool(answer.not_applied)
    world.pipeline.refresh_from_db()
    assert world.pipeline.slug == "pipe-world"
    assert world.pipeline.detector_of(world.pipeline.algorithms.all()) == world.detector


def test_repeating_it_changes_nothing(world: World) -> None:
    for _ in range(2):
        answer = enter(world, described(world, "other", "-2"))
        assert answer == Registered()
        assert (PipelineAlias.objects.count(), AlgorithmAlias.objects.count()) == (1, 2)
    assert Pipeline.objects.filter(project=world.project).count() == 1


def test_slug_whose_name_and_version_are_taken_keeps_its_own(world: World) -> None:
    second = Pipeline.objects.create(project=world.project, name="Second", slug="second")
    answer = enter(world, described(world, "second"))
    second.refresh_from_db()
    assert second.name == "Second"
    assert answer.not_applied == ["Pipeline 'second' keeps its name: 'pipe-world' is 'Pipe world' version 1."]


def test_alias_that_gets_another_name_becomes_a_row_of_its_own(world: World) -> None:
    enter(world, described(world, "other"))
    enter(world, described(world, "other", version=2))
    assert Pipeline.objects.for_project(world.project.pk, "other").version == 2
    assert Pipeline.objects.for_project(world.project.pk, "pipe-world") == world.pipeline
    assert not PipelineAlias.objects.exists()


def test_known_version_with_other_classes_is_refused(world: World) -> None:
    with pytest.raises(RegistrationRefused, match="'cls-world' with other classes") as raised:
        enter(world, described(world, "other", "-2", labels=["a"]))
    assert raised.value.field == "pipelines.0.algorithms.1.category_map"
    assert names(world) == BEFORE


@pytest.mark.parametrize(("known", "task_type"), [("detector", "classification"), ("classifier", "detection")])
def test_known_version_of_another_kind_is_refused(world: World, known: str, task_type: str) -> None:
    algorithm = {
        "name": getattr(world, known).name,
        "key": "other",
        "task_type": task_type,
        "category_map": {"data": [], "labels": LABELS},
    }
    with pytest.raises(RegistrationRefused, match="give yours another name or version") as raised:
        enter(world, described(world, "other", algorithms=[algorithm]))
    assert raised.value.field == "pipelines.0.algorithms.0.task_type"


def test_results_under_either_names_are_one(world: World) -> None:
    enter(world, described(world, "other", "-2"))
    [capture] = world.captures(1)
    first = world.found(capture, boxes=2)
    second = world.found(capture, boxes=2)
    second["pipeline"] = "other"
    for detection in second["detections"]:
        for part in (detection, *detection["classifications"]):
            part["algorithm"]["key"] += "-2"
    for result in (first, second):
        handle_result(world.running([capture]).pk, result=result)
        assert JobImage.objects.filter(state="processed").exists()
    assert Detection.objects.count() == Occurrence.objects.count() == Classification.objects.current().count() == 2
    assert set(Detection.objects.values_list("detection_algorithm", flat=True)) == {world.detector.pk}


def test_lookup_by_alias_takes_one_statement_for_the_algorithms_as_without(world: World) -> None:
    [capture] = world.captures(1)
    detections = PipelineResultsResponse.model_validate(world.found(capture)).detections
    counts = []
    for _ in range(2):
        NameLookup.of(world.pipeline.slug, detections, world.project.pk, world.pipeline)
        with CaptureQueriesContext(connection) as statements:
            found = NameLookup.of(world.pipeline.slug, detections, world.project.pk, world.pipeline)
        counts.append(len(statements))
        enter(world, described(world, "other", "-2"), described(world, "third", "-3"))
    assert counts[0] == counts[1]
    assert found.detector.pk == world.detector.pk


@pytest.mark.parametrize("slugs", [["other"], ["pipe-world"], ["other", "pipe-world"], ["strange"], []])
def test_worker_gets_the_job_with_the_slug_that_it_asked_for(world: World, slugs: list[str]) -> None:
    enter(world, described(world, "other"))
    job = world.running(world.captures(1))
    client = APIClient()
    client.force_authenticate(world.user)
    query = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": ",".join(slugs)}
    rows = client.get("/api/v2/jobs/", query).json()["results"]
    expected = "pipe-world" if not slugs or "pipe-world" in slugs else slugs[0]
    assert rows == ([] if slugs == ["strange"] else [{"id": job.pk, "pipeline_slug": expected}])


def test_poll_under_an_alias_is_a_heartbeat(world: World) -> None:
    enter(world, described(world, "other"))
    ProcessingService.objects.update(last_seen=None)
    cache.clear()
    heartbeats._last.clear()
    assert heartbeats.record_heartbeat(project_ids=[world.project.pk], slugs=["other"])
    assert ProcessingService.objects.get().last_seen


def test_pushed_batch_names_the_slug_that_the_service_knows(world: World) -> None:
    seen: list[str] = []
    captures = world.captures(1)

    def answer(path: str, body: dict) -> tuple[int, object]:
        seen.append(body["pipeline"])
        return 200, {**world.found(*captures), "pipeline": body["pipeline"]}

    with served(answer) as url:
        service = push_service(world, url)
        PipelineAlias.objects.create(project=world.project, pipeline=world.pipeline, slug="other").services.add(service)
        job = world.job(captures, mode="sync_api")
        job_slice.run_slice(job, "me", Now())
    assert seen == ["other"]
    assert JobImage.objects.get().state == "processed"


def test_service_that_registers_the_first_slug_again_is_called_by_it(world: World) -> None:
    enter(world, described(world, "other"))
    enter(world, described(world, "pipe-world"))
    assert not PipelineAlias.objects.get().services.exists()


def test_shared_pipeline_of_the_same_name_and_version_is_adopted_under_both_slugs(world: World) -> None:
    shared = new_world("shared", own=False)
    use = ProjectPipelineConfig.objects.create(project=world.project, pipeline=shared.pipeline, config={"threshold": 2})
    Project.objects.filter(pk=world.project.pk).update(default_processing_pipeline=shared.pipeline)
    enter(world, described(shared, "mine", "-2"))
    own = Pipeline.objects.get(project=world.project, slug="mine")
    use.refresh_from_db()
    world.project.refresh_from_db()
    assert use.pipeline == pipeline_for(world.project) == own
    assert list(Pipeline.objects.enabled_for(world.project.pk).named([shared.pipeline.slug])) == [own]
    for slug in ("mine", shared.pipeline.slug):
        assert Pipeline.objects.for_project(world.project.pk, slug) == own
    assert shared.pipeline.config_for(world.project.pk) == {"threshold": 2}
    assert names(world)["det-shared"] == shared.detector.name
    # Another project goes on with the shared one.
    assert Pipeline.objects.for_project(shared.project.pk, shared.pipeline.slug) == shared.pipeline


def test_capture_of_the_shared_algorithms_processed_under_other_keys_has_no_second_box(db: None) -> None:
    shared = new_world("shared", own=False)
    [capture] = shared.captures(1)
    result = shared.found(capture)
    handle_result(shared.running([capture]).pk, result=result)
    enter(shared, described(shared, "mine", "-2"))
    shared.pipeline = Pipeline.objects.get(project=shared.project)
    again = {**result, "pipeline": "mine"}
    for part in (again["detections"][0], *again["detections"][0]["classifications"]):
        part["algorithm"]["key"] += "-2"
    handle_result(shared.running([capture]).pk, result=again)
    assert Detection.objects.count() == Occurrence.objects.count() == Classification.objects.current().count() == 1
    assert Detection.objects.get().detection_algorithm.project == shared.project


def test_alias_of_another_project_finds_nothing(world: World) -> None:
    enter(world, described(world, "other"))
    other = new_world("other-project")
    assert Pipeline.objects.for_project(other.project.pk, "other") is None
