"""Registration: a service brings what it runs, and changes nothing that other projects rely on."""

import pytest

from ami.ml.models import Pipeline, ProcessingService
from ami.ml.registration import RegistrationRefused, register_pull_service
from ami.ml.schemas import PipelineConfigResponse
from tests.unit.jobs.world import World, new_world


def config(world: World, name: str) -> PipelineConfigResponse:
    """The pipeline of ``world`` under another name, with its detector under another name, too."""
    algorithm = {"name": name, "key": world.detector.key, "task_type": "detection"}
    return PipelineConfigResponse.model_validate(
        {"name": name, "slug": world.pipeline.slug, "version": 1, "algorithms": [algorithm], "stages": []}
    )


def test_pipeline_and_algorithm_of_another_project_are_linked_as_they_are(world: World) -> None:
    other = new_world("other")
    register_pull_service("mine", world.project.pk, [config(other, "hijacked")], {world.project.pk})
    other.pipeline.refresh_from_db()
    other.detector.refresh_from_db()
    assert "hijacked" not in (other.pipeline.name, other.detector.name)
    assert other.pipeline.algorithms.count() == 2
    assert Pipeline.objects.filter(project_configs__project=world.project, slug=other.pipeline.slug).exists()


def test_ones_own_pipeline_is_updated(world: World) -> None:
    register_pull_service("mine", world.project.pk, [config(world, "renamed")], {world.project.pk})
    world.pipeline.refresh_from_db()
    assert world.pipeline.name == "renamed"


def test_service_name_of_another_project_is_taken(world: World) -> None:
    other = new_world("other")
    register_pull_service("theirs", other.project.pk, [], {other.project.pk})
    with pytest.raises(RegistrationRefused, match="'theirs' is taken"):
        register_pull_service("theirs", world.project.pk, [], {world.project.pk})
    assert list(ProcessingService.objects.get(name="theirs").projects.all()) == [other.project]


def test_who_may_change_both_projects_may_share_a_service(world: World) -> None:
    other = new_world("other")
    both = {world.project.pk, other.project.pk}
    register_pull_service("shared", other.project.pk, [], both)
    register_pull_service("shared", world.project.pk, [config(other, "renamed by both")], both)
    other.pipeline.refresh_from_db()
    assert other.pipeline.name == "renamed by both"
    assert ProcessingService.objects.get(name="shared").projects.count() == 2
