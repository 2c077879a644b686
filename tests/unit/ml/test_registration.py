"""Registration: a service registers its pipelines as rows of its project only."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from ami.jobs.services.reprocess_jobs import pipeline_for
from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline, ProcessingService, ProjectPipelineConfig
from ami.ml.schemas import PipelineConfigResponse
from ami.ml.services.registration import RegistrationRefused, register, register_pull_service
from tests.support.product.job_setup import World, new_world
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


def config(world: World, name: str, **fields: Any) -> PipelineConfigResponse:
    """The pipeline of ``world`` and its detector under other names."""
    algorithm = {"name": name, "key": world.detector.key, "task_type": "detection"}
    return PipelineConfigResponse.model_validate(
        {"name": name, "slug": world.pipeline.slug, "version": 1, "algorithms": [algorithm], "stages": [], **fields}
    )


def shared_use(world: World, **fields: Any) -> ProjectPipelineConfig:
    """Make the world's project use a pipeline of the shared catalogue."""
    shared = new_world("shared", own=False).pipeline
    Pipeline.objects.filter(pk=shared.pk).update(default_config={"threshold": 1})
    return ProjectPipelineConfig.objects.create(project=world.project, pipeline=shared, **fields)


def test_pipeline_and_algorithm_of_another_project_stay_as_they_are(world: World) -> None:
    other = new_world("other")
    register_pull_service("mine", world.project.pk, [config(other, "hijacked")])
    other.pipeline.refresh_from_db()
    other.detector.refresh_from_db()
    assert "hijacked" not in (other.pipeline.name, other.detector.name)
    assert other.pipeline.algorithms.count() == 2
    own = Pipeline.objects.get(project=world.project, slug=other.pipeline.slug)
    assert own.name == own.algorithms.get().name == "hijacked"
    assert not other.pipeline.project_configs.filter(project=world.project).exists()


def test_ones_own_pipeline_is_updated(world: World) -> None:
    register_pull_service("mine", world.project.pk, [config(world, "renamed")])
    world.pipeline.refresh_from_db()
    assert world.pipeline.name == "renamed"


def test_service_name_is_taken_only_within_its_project(world: World) -> None:
    other = new_world("other")
    for project in (other.project, world.project, world.project):
        register_pull_service("worker", project.pk, [])
    services = ProcessingService.objects.filter(name="worker").order_by("pk")
    assert [list(service.projects.all()) for service in services] == [[other.project], [world.project]]


def test_name_of_a_service_with_an_address_is_refused(world: World) -> None:
    ProcessingService.objects.create(name="push", endpoint_url="http://push.example", project=world.project)
    with pytest.raises(RegistrationRefused, match="'push' is a service that Antenna calls"):
        register_pull_service("push", world.project.pk, [])


def test_service_of_several_projects_registers_a_row_in_each(world: World) -> None:
    other = new_world("other")
    service = ProcessingService.objects.create(name="push", endpoint_url="http://push.example")
    service.projects.add(world.project, other.project)
    register(service, [other.project.pk, world.project.pk], [config(other, "pushed")])
    rows = service.pipelines.order_by("project_id")
    assert [(row.project, row.name) for row in rows] == [(world.project, "pushed"), (other.project, "pushed")]


def test_shared_pipeline_is_adopted_with_its_switch_and_configuration(world: World) -> None:
    use = shared_use(world, config={"threshold": 2})
    shared = use.pipeline
    world.project.default_processing_pipeline = shared
    world.project.save()
    service = ProcessingService.objects.create(name="push", endpoint_url="http://push.example")
    service.projects.add(world.project)
    service.pipelines.add(shared)
    register_pull_service("mine", world.project.pk, [config(world, "own", slug=shared.slug)])
    own = Pipeline.objects.get(project=world.project, slug=shared.slug)
    use.refresh_from_db()
    world.project.refresh_from_db()
    assert (use.pipeline, use.config, own.default_config) == (own, {"threshold": 2}, {"threshold": 1})
    assert world.project.default_processing_pipeline == pipeline_for(world.project) == own
    assert own in service.pipelines.all()
    # The shared row, and a job that began on it, go on as before.
    shared.refresh_from_db()
    assert shared.name == "Pipe shared"
    assert shared.config_for(world.project.pk) == {"threshold": 2}
    assert Pipeline.objects.for_project(world.project.pk, shared.slug) == own


def test_shared_pipeline_that_the_project_does_not_use_is_not_copied(world: World) -> None:
    shared = shared_use(new_world("other")).pipeline
    register_pull_service("mine", world.project.pk, [config(world, "own", slug=shared.slug)])
    assert Pipeline.objects.get(project=world.project, slug=shared.slug).default_config == {}


def test_own_pipeline_hides_the_shared_one_of_its_slug(world: World) -> None:
    shared = new_world("shared", own=False).pipeline
    Pipeline.objects.filter(pk=shared.pk).update(slug=world.pipeline.slug)
    ProjectPipelineConfig.objects.create(project=world.project, pipeline=shared)
    assert Pipeline.objects.for_project(world.project.pk, world.pipeline.slug) == world.pipeline
    assert list(Pipeline.objects.enabled_for(world.project.pk)) == [world.pipeline]


def test_shared_pipeline_is_used_only_where_it_is_enabled(world: World) -> None:
    use = shared_use(world)
    assert Pipeline.objects.for_project(world.project.pk, use.pipeline.slug) == use.pipeline
    ProjectPipelineConfig.objects.filter(pk=use.pk).update(enabled=False)
    assert Pipeline.objects.for_project(world.project.pk, use.pipeline.slug) is None
    assert not Pipeline.objects.used_in([world.project.pk]).filter(pk=use.pipeline.pk).exists()
    assert not Algorithm.objects.used_in([world.project.pk]).filter(project=None).exists()


def test_answer_says_what_was_not_applied(world: World) -> None:
    client = APIClient()
    client.force_authenticate(world.user)
    world.pipeline.project_configs.update(enabled=False)
    wanted = config(world, "own").model_dump(mode="json")
    other = {**wanted, "slug": "second", "name": "second"}
    other["algorithms"] = [{**wanted["algorithms"][0], "description": "another"}]
    body = {"processing_service_name": "worker", "pipelines": [wanted, other, wanted]}
    answer = client.post(f"/api/v2/projects/{world.project.pk}/pipelines/", body, format="json").json()
    assert set(answer) == {"timestamp", "success", "pipelines", "pipelines_created", "algorithms_created", "error"}
    assert answer["success"] is True
    for part in ("is disabled in this project", "is described in several ways", "is described more than once"):
        assert part in answer["error"]
    body["pipelines"] = [{**other, "algorithms": wanted["algorithms"]}]
    answer = client.post(f"/api/v2/projects/{world.project.pk}/pipelines/", body, format="json").json()
    assert answer["error"] is None


def test_registering_again_finds_the_same_category_map(world: World) -> None:
    classifier = {"name": "C", "key": "c", "task_type": "classification"}
    one = config(world, "own", algorithms=[{**classifier, "category_map": {"data": [], "labels": ["a"]}}])
    for _ in range(2):
        register_pull_service("mine", world.project.pk, [one])
    register_pull_service("theirs", new_world("other").project.pk, [one])
    maps = AlgorithmCategoryMap.objects.filter(labels=["a"])
    assert maps.count() == maps.values("project").distinct().count() == 2


def test_bodies_of_clients_of_pydantic_1_are_understood(world: World) -> None:
    client = APIClient()
    client.force_authenticate(world.user)
    path = f"/api/v2/projects/{world.project.pk}/pipelines/"
    assert client.post(path, {"processing_service_name": "none"}, format="json").status_code == 201
    detector = {"name": "D", "key": "d", "task_type": "detection", "category_map": {}}
    classifier = {"name": "C", "key": "c", "task_type": "classification", "category_map": {"labels": [1, 2]}}
    first = {"name": "P", "slug": "p", "version": 1, "algorithms": [{**detector, "category_map": None}, classifier]}
    # The same name and version under other keys, the detector with an empty map.
    again = {**first, "slug": "p2", "algorithms": [{**detector, "key": "d2"}, {**classifier, "key": "c2"}]}
    for pipeline in (first, again):
        answer = client.post(path, {"processing_service_name": "w", "pipelines": [pipeline]}, format="json")
        assert answer.status_code == 201, answer.content
    assert Algorithm.objects.get(key="c").category_map.labels == ["1", "2"]
    assert not Algorithm.objects.filter(key__in=["c2", "d2"]).exists()


def test_job_may_not_be_given_another_projects_pipeline(world: World) -> None:
    other = new_world("other")
    # As an older version, or an operator's hand, may have left it.
    ProjectPipelineConfig.objects.create(project=world.project, pipeline=other.pipeline)
    world.project.default_processing_pipeline = other.pipeline
    world.project.save()
    client = APIClient()
    client.force_authenticate(world.user)
    body = {"name": "x", "project": world.project.pk, "pipeline": other.pipeline.pk}
    assert set(client.post("/api/v2/jobs/", body, format="json").json()) == {"pipeline"}
    assert pipeline_for(world.project) == world.pipeline
    address = f"/api/v2/projects/{world.project.pk}/"
    assert client.patch(address, {"default_processing_pipeline": other.pipeline.pk}, format="json").status_code == 400


def test_project_is_deleted_with_its_pipelines_algorithms_and_findings(world: World) -> None:
    from ami.main.models import Detection

    [capture] = world.captures(1)
    handle_result(world.running([capture]).pk, result=world.found(capture))
    register_pull_service("mine", world.project.pk, [config(world, "own")])
    assert Detection.objects.exists()
    world.project.delete()
    for model in (Pipeline, Algorithm, AlgorithmCategoryMap, ProcessingService, Detection):
        assert not model.objects.exists()
