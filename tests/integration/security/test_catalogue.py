"""Pipelines, algorithms and taxa by project: a name registered in one project has no effect in another."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.models import Job
from ami.main.models import Classification, Detection, Identification, Taxon
from ami.ml.models import Algorithm, Pipeline, ProcessingService
from ami.ml.schemas import PipelineConfigResponse, ProcessingServiceStatusResponse
from ami.ml.tasks import check_processing_service
from tests.support.product import factories
from tests.support.product.results import handle_result
from tests.support.product.tenants import Tenant


def described(slug: str, labels: list[str], **fields: Any) -> dict[str, Any]:
    """A pipeline as a client describes it: a detector and a classifier with these labels."""
    entries = [{"index": index, "label": label, "taxon_rank": "SPECIES"} for index, label in enumerate(labels)]
    return {
        "name": f"Public {slug}",
        "slug": slug,
        "version": 1,
        "stages": [],
        "algorithms": [
            {"name": f"Detector {slug}", "key": f"{slug}-det", "task_type": "detection"},
            {
                "name": f"Classifier {slug}",
                "key": f"{slug}-cls",
                "task_type": "classification",
                "category_map": {"data": entries, "labels": labels},
            },
        ],
        **fields,
    }


def register(client: APIClient, project: int, *pipelines: dict[str, Any], name: str = "worker") -> dict[str, Any]:
    body = {"processing_service_name": name, "pipelines": list(pipelines)}
    answer = client.post(f"/api/v2/projects/{project}/pipelines/", body, format="json")
    assert answer.status_code == 201, answer.content
    return answer.json()


def rows(client: APIClient, address: str) -> list[dict[str, Any]]:
    answer = client.get(f"/api/v2/{address}")
    assert answer.status_code == 200, answer.content
    body = answer.json()
    return body["results"] if isinstance(body, dict) else body


def test_registering_another_projects_slug_reveals_nothing_of_it(mine: Tenant, theirs: Tenant) -> None:
    secret = theirs.world.pipeline
    Pipeline.objects.filter(pk=secret.pk).update(default_config={"key": "s3cret"}, description="s3cret")
    register(mine.client, mine.world.project.pk, described(secret.slug, ["Moth"]))
    for address in ("ml/pipelines/", f"projects/{mine.world.project.pk}/pipelines/", "ml/algorithms/"):
        assert "s3cret" not in str(rows(mine.client, address))
        assert secret.name not in str(rows(mine.client, address))
    [row] = [row for row in rows(mine.client, "ml/pipelines/") if row["slug"] == secret.slug]
    assert (row["name"], row["default_config"]) == (f"Public {secret.slug}", {})
    assert mine.client.get(f"/api/v2/ml/pipelines/{secret.pk}/").status_code == 404


def test_registering_another_projects_slug_does_not_freeze_it(mine: Tenant, theirs: Tenant) -> None:
    register(theirs.client, theirs.world.project.pk, described("sheet", ["Moth"]))
    register(mine.client, mine.world.project.pk, described("sheet", ["Moth"]))
    changed = described("sheet", ["Moth", "Beetle"], name="Newer", version=2)
    register(theirs.client, theirs.world.project.pk, changed)
    [row] = [row for row in rows(theirs.client, "ml/pipelines/") if row["slug"] == "sheet"]
    assert (row["name"], row["version"]) == ("Newer", 2)
    classifier = next(a for a in row["algorithms"] if a["key"] == "sheet-cls")
    assert Algorithm.objects.get(pk=classifier["id"]).category_map.labels == ["Moth", "Beetle"]


def test_slug_registered_first_elsewhere_keeps_the_owners_labels(mine: Tenant, theirs: Tenant) -> None:
    squatted = described("sheet", ["Fake", "Moth"], default_config={"threshold": 0})
    register(mine.client, mine.world.project.pk, squatted)
    register(theirs.client, theirs.world.project.pk, described("sheet", ["Moth", "Beetle"]))
    pipeline = next(row for row in rows(theirs.client, "ml/pipelines/") if row["slug"] == "sheet")
    job = finished_job(theirs, pipeline["id"])
    handle_result(job.pk, result=found(theirs, "sheet", "Beetle"))
    saved = Classification.objects.get(detection__source_image=theirs.capture, algorithm__key="sheet-cls")
    assert saved.category_map.labels == ["Moth", "Beetle"]
    assert saved.algorithm_id in [algorithm["id"] for algorithm in pipeline["algorithms"]]


def finished_job(tenant: Tenant, pipeline_id: int) -> Job:
    """A running job of the tenant over its capture with this pipeline."""
    tenant.world.pipeline = Pipeline.objects.get(pk=pipeline_id)
    return tenant.world.running([tenant.capture])


def found(tenant: Tenant, slug: str, label: str) -> dict[str, Any]:
    """A result of the pipeline `described` for the tenant's capture."""
    result = tenant.world.found(tenant.capture, label=label)
    result["pipeline"] = slug
    for detection in result["detections"]:
        detection["algorithm"] = {"name": f"Detector {slug}", "key": f"{slug}-det"}
        for classification in detection["classifications"]:
            classification["algorithm"] = {"name": f"Classifier {slug}", "key": f"{slug}-cls"}
    return result


def test_same_labels_with_other_data_keep_each_projects_own_map(mine: Tenant, theirs: Tenant) -> None:
    hostile = described("sheet", ["Moth"])
    hostile["algorithms"][1]["category_map"]["data"] = [{"index": 0, "label": "Moth", "taxon_rank": "ORDER"}]
    register(mine.client, mine.world.project.pk, hostile)
    register(theirs.client, theirs.world.project.pk, described("sheet", ["Moth"]))
    row = next(row for row in rows(theirs.client, "ml/pipelines/") if row["slug"] == "sheet")
    classifier = Algorithm.objects.get(pk=next(a["id"] for a in row["algorithms"] if a["key"] == "sheet-cls"))
    assert classifier.category_map.data == [{"index": 0, "label": "Moth", "taxon_rank": "SPECIES"}]


def test_service_name_of_another_project_is_free_in_ones_own(mine: Tenant, theirs: Tenant) -> None:
    register(mine.client, mine.world.project.pk, name="ami-worker")
    register(theirs.client, theirs.world.project.pk, name="ami-worker")
    for tenant in (mine, theirs):
        [row] = [row for row in rows(tenant.client, "ml/processing_services/") if row["name"] == "ami-worker"]
        assert row["projects"] == [tenant.world.project.pk]
        body = {"name": "ami-worker", "project": tenant.world.project.pk}
        answer = tenant.client.post("/api/v2/ml/processing_services/", body, format="json")
        assert (answer.status_code, set(answer.json())) == (400, {"name"})


def test_polling_a_slug_marks_no_service_of_another_project_as_seen(mine: Tenant, theirs: Tenant) -> None:
    for tenant in (mine, theirs):
        register(
            tenant.client, tenant.world.project.pk, described("sheet", ["Moth"]), name=f"worker {tenant.capture.pk}"
        )
    ProcessingService.objects.update(last_seen=None, last_seen_live=None)
    query = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": "sheet"}
    assert mine.client.get("/api/v2/jobs/", query).status_code == 200
    seen = ProcessingService.objects.exclude(last_seen=None).values_list("name", flat=True)
    assert list(seen) == [f"worker {mine.capture.pk}"]


def test_result_does_not_register_another_projects_pipeline(mine: Tenant, theirs: Tenant) -> None:
    Detection.objects.filter(source_image=mine.capture).delete()
    register(theirs.client, theirs.world.project.pk, described("sheet", ["Moth"]))
    handle_result(mine.job.pk, result=found(mine, "sheet", "Moth"))
    borrowed = {**found(mine, "sheet", "Moth"), "pipeline": mine.world.pipeline.slug}
    handle_result(mine.job.pk, result=borrowed)
    lines = list(mine.job.log_entries.order_by("pk").values_list("message", flat=True))
    assert "of pipeline 'sheet'" in lines[-2]
    assert "'sheet-cls', 'sheet-det'" in lines[-1]
    assert not Detection.objects.filter(source_image=mine.capture).exists()


def test_result_about_no_image_of_the_job_creates_no_taxa(mine: Tenant, theirs: Tenant) -> None:
    result = mine.world.found(theirs.capture, boxes=50)
    for number, detection in enumerate(result["detections"]):
        detection["classifications"][0]["classification"] = f"Invented {number}"
    handle_result(mine.job.pk, result=result)
    assert not Taxon.objects.filter(name__startswith="Invented").exists()
    assert not Detection.objects.filter(
        source_image=theirs.capture, classifications__algorithm__key="cls-mine"
    ).exists()
    assert mine.job.log_entries.filter(message__contains="images that the job does not have").count() == 1


def test_taxa_of_another_project_are_neither_listed_nor_read(mine: Tenant, theirs: Tenant) -> None:
    handle_result(theirs.job.pk, result=theirs.world.found(theirs.capture, label="Secretaria ignota"))
    checklist = factories.taxon("Noctua comes")
    secret = Taxon.objects.get(name="Secretaria ignota")
    names = [row["name"] for row in rows(mine.client, "taxa/?limit=500")]
    assert secret.name not in names
    assert checklist.name in names
    assert mine.client.get(f"/api/v2/taxa/{secret.pk}/").status_code == 404
    assert theirs.client.get(f"/api/v2/taxa/{secret.pk}/").status_code == 200
    assert rows(mine.client, f"taxa/?name={secret.name}") == []


def test_taxon_of_an_identification_is_listed_for_the_project(mine: Tenant, theirs: Tenant) -> None:
    taxon = factories.taxon("Secretaria ignota", shared=False)
    Identification.objects.create(occurrence=theirs.rows["occurrences"], user=theirs.world.user, taxon=taxon)
    assert [row["name"] for row in rows(theirs.client, "taxa/?name=Secretaria")] == [taxon.name]
    assert not rows(mine.client, "taxa/?name=Secretaria")


def test_result_keeps_a_shared_taxon_shared(mine: Tenant, theirs: Tenant) -> None:
    checklist = factories.taxon("Noctua comes")
    handle_result(theirs.job.pk, result=theirs.world.found(theirs.capture, label=checklist.name))
    assert checklist.name in [row["name"] for row in rows(mine.client, "taxa/?limit=500")]


def test_taxa_of_a_deleted_project_do_not_become_shared(mine: Tenant, theirs: Tenant) -> None:
    handle_result(theirs.job.pk, result=theirs.world.found(theirs.capture, label="Secretaria ignota"))
    assert theirs.client.delete(f"/api/v2/projects/{theirs.world.project.pk}/").status_code == 204
    assert not rows(mine.client, "taxa/?name=Secretaria")


def test_algorithms_of_another_project_are_neither_listed_nor_read(mine: Tenant, theirs: Tenant) -> None:
    keys = [row["key"] for row in rows(mine.client, "ml/algorithms/?limit=500")]
    assert sorted(keys) == ["cls-mine", "det-mine"]
    assert mine.client.get(f"/api/v2/ml/algorithms/{theirs.world.detector.pk}/").status_code == 404
    assert mine.client.get(f"/api/v2/ml/algorithms/{mine.world.detector.pk}/").status_code == 200


@pytest.mark.parametrize("kind", ["ml/pipelines", "ml/algorithms", "ml/processing_services", "taxa"])
def test_queries_of_a_list_do_not_grow_with_rows(mine: Tenant, kind: str) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert rows(mine.client, f"{kind}/?limit=500")
        return len(queries)

    mine.client.get(f"/api/v2/{kind}/")
    before = asked()
    for number in range(4):
        register(mine.client, mine.world.project.pk, described(f"sheet-{number}", ["Moth"]), name=f"worker {number}")
        factories.taxon()
    assert asked() == before


def test_shared_service_names_no_project_and_no_pipeline_of_others(mine: Tenant, theirs: Tenant) -> None:
    shared = ProcessingService.objects.create(name="push", endpoint_url="http://push.example")
    for tenant in (mine, theirs):
        shared.projects.add(tenant.world.project)
        shared.pipelines.add(tenant.world.pipeline)
    row = mine.client.get(f"/api/v2/ml/processing_services/{shared.pk}/").json()
    assert (row["projects"], row["pipelines"]) == ([mine.world.project.pk], [mine.world.pipeline.pk])


def test_user_registers_a_shared_service_in_own_projects_only(
    mine: Tenant, theirs: Tenant, published, monkeypatch, django_capture_on_commit_callbacks
) -> None:
    shared = ProcessingService.objects.create(name="push", endpoint_url="http://push.example")
    shared.projects.add(mine.world.project, theirs.world.project)
    pushed = PipelineConfigResponse.model_validate(described("sheet", ["Moth"]))
    status = ProcessingServiceStatusResponse(
        timestamp=timezone.now(), request_successful=True, pipeline_configs=[pushed], latency=0.0
    )
    monkeypatch.setattr("ami.ml.services.probes.check_now", lambda *_: status)
    address = f"/api/v2/ml/processing_services/{shared.pk}"
    assert mine.client.post(f"{address}/register_pipelines/").status_code == 200
    assert [each.project for each in Pipeline.objects.filter(slug="sheet")] == [mine.world.project]
    with django_capture_on_commit_callbacks(execute=True):
        assert mine.client.post(f"{address}/check/").status_code == 202
    [(_, message)] = published
    assert message["kwargs"] == {"service_id": shared.pk, "project_ids": [mine.world.project.pk]}
    check_processing_service(**message["kwargs"])
    assert Pipeline.objects.filter(slug="sheet").count() == 1


@pytest.mark.parametrize("kind", ["ml/pipelines", "ml/algorithms", "taxa"])
def test_filter_by_another_project_shows_no_row_of_it(mine: Tenant, theirs: Tenant, kind: str) -> None:
    handle_result(theirs.job.pk, result=theirs.world.found(theirs.capture, label="Secretaria ignota"))
    visible = rows(mine.client, f"{kind}/?project={theirs.world.project.pk}&limit=500")
    assert visible == rows(mine.client, f"{kind}/?project={2**40}&limit=500")
    assert "theirs" not in str(visible)
    assert "Secretaria" not in str(visible)
    assert rows(mine.client, f"{kind}/?project={mine.world.project.pk}")
    assert mine.client.get(f"/api/v2/{kind}/?project=x").status_code == 400
