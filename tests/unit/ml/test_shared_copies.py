"""The shared catalogue: copies made by staff, and enabling them for projects."""

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.auth.models import Permission
from django.test import Client

from ami.main.models import User
from ami.ml.models import Algorithm, Pipeline, ProjectPipelineConfig
from ami.ml.services.shared_copies import CannotBeShared, add_to_catalogue
from tests.support.product.job_setup import World, new_world

pytestmark = pytest.mark.sqlite


def staff(*permissions: str) -> Client:
    person = User.objects.create_user(f"{'-'.join(permissions)}@example.org", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(person)
    return client


def share(client: Client, pipeline: Pipeline) -> str:
    body = {"action": "share", "_selected_action": [pipeline.pk]}
    return client.post("/admin/ml/pipeline/", body, follow=True).content.decode()


def test_shared_copy_has_its_own_algorithms_and_leaves_the_projects_rows(world: World) -> None:
    shared = add_to_catalogue(world.pipeline)
    assert (shared.project, shared.slug) == (None, world.pipeline.slug)
    for algorithm in shared.algorithms.select_related("category_map"):
        assert algorithm.project is None
        assert algorithm.category_map is None or algorithm.category_map.project is None
    assert world.pipeline.algorithms.filter(project=world.project).count() == 2
    assert Pipeline.objects.for_project(world.project.pk, shared.slug) == world.pipeline
    assert Pipeline.objects.for_project(new_world("other").project.pk, shared.slug) is None


def test_second_copy_and_another_algorithm_of_a_key_are_refused(world: World) -> None:
    add_to_catalogue(world.pipeline)
    with pytest.raises(CannotBeShared, match="already"):
        add_to_catalogue(world.pipeline)
    other = new_world("other")
    Algorithm.objects.filter(pk=other.detector.pk).update(key=world.detector.key, version=2)
    with pytest.raises(CannotBeShared, match=f"another algorithm '{world.detector.key}'"):
        add_to_catalogue(other.pipeline)
    assert Pipeline.objects.filter(project=None).count() == 1


def test_pipeline_that_two_share_at_once_is_shared_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def shared_meanwhile(own: Algorithm) -> Algorithm:
        Pipeline.objects.create(name=world.pipeline.name, slug=world.pipeline.slug, version=world.pipeline.version)
        return own

    monkeypatch.setattr("ami.ml.services.shared_copies._shared_algorithm", shared_meanwhile)
    with pytest.raises(CannotBeShared, match="at the same time"):
        add_to_catalogue(world.pipeline)


def test_staff_share_a_pipeline_in_the_admin_and_the_log_says_so(world: World) -> None:
    page = share(staff("view_pipeline", "add_pipeline", "change_pipeline"), world.pipeline)
    assert "is in the shared catalogue" in page
    shared = Pipeline.objects.get(project=None)
    entries = LogEntry.objects.order_by("pk").values_list("object_id", "action_flag")
    assert set(entries) == {(str(shared.pk), ADDITION), (str(world.pipeline.pk), CHANGE)}
    assert "already" in share(staff("view_pipeline", "add_pipeline", "change_pipeline", "x"), world.pipeline)


def test_staff_who_may_not_add_pipelines_share_none(world: World) -> None:
    share(staff("view_pipeline", "change_pipeline"), world.pipeline)
    assert not Pipeline.objects.filter(project=None).exists()


def test_another_projects_pipeline_cannot_be_enabled_in_the_admin(world: World) -> None:
    from django.core.exceptions import ValidationError

    other = new_world("other")
    with pytest.raises(ValidationError, match="another project"):
        ProjectPipelineConfig(pipeline=other.pipeline, project=world.project).full_clean()
    with pytest.raises(ValidationError, match="another project"):
        Algorithm(name="x", key="x", project=world.project, category_map=other.classifier.category_map).full_clean()
    shared = add_to_catalogue(other.pipeline)
    ProjectPipelineConfig(pipeline=shared, project=world.project).full_clean()
