"""What the product sends to a service that is called at its address, recorded by a minimal one."""

import httpx
import pytest

from ami.main.models import Project
from ami.ml.models import Pipeline, ProjectPipelineConfig
from tests.integration.contract.conftest import Deployment
from tests.support.place import until
from tests.support.product.push_service import SLUG, PushService


@pytest.fixture
def synchronous(deployment: Deployment):
    """The project, with its jobs pushed instead of pulled."""
    project = Project.objects.filter(pk=deployment.world.project.pk)
    before = deployment.world.project.feature_flags
    project.update(feature_flags={**before, "async_pipeline_workers": False})
    yield deployment.world.project
    project.update(feature_flags=before)


def register(client: httpx.Client, project: Project, service: PushService) -> int:
    """Register the service as staff do, and return the key of its pipeline."""
    body = {"name": "contract push", "project": project.pk, "endpoint_url": service.url}
    made = client.post("/ml/processing_services/", json=body)
    assert made.status_code == 201, made.text
    answer = client.post(f"/ml/processing_services/{made.json()['id']}/register_pipelines/")
    assert answer.status_code == 200, answer.text
    status = answer.json()
    assert {"timestamp", "request_successful", "pipeline_configs", "pipelines_online", "latency"} <= set(status)
    assert (status["request_successful"], status["server_live"]) == (True, True)
    assert [config["slug"] for config in status["pipeline_configs"]] == [SLUG]
    listed = client.get(f"/projects/{project.pk}/pipelines/").json()
    [row] = [row for row in listed if row["slug"] == SLUG]
    return int(row["id"])


def test_service_gets_requests_of_the_recorded_shape(
    deployment: Deployment, client: httpx.Client, synchronous: Project, push_service: PushService
) -> None:
    pipeline = register(client, synchronous, push_service)
    assert set(push_service.asked) <= {"/info", "/livez", "/readyz"}
    assert "/info" in push_service.asked
    Pipeline.objects.filter(pk=pipeline).update(default_config={"threshold": 0.1, "colour": "grey"})
    own = {"threshold": 0.5, "request_source_image_batch_size": 2}
    assert ProjectPipelineConfig.objects.filter(project=synchronous, pipeline=pipeline).update(config=own) == 1
    captures = deployment.captures[:3]
    body = {
        "name": "push",
        "project": synchronous.pk,
        "job_type_key": "ml",
        "pipeline": pipeline,
        "params": {"source_image_ids": [capture.pk for capture in captures]},
    }
    job = client.post("/jobs/", params={"start_now": 1}, json=body).json()["id"]
    until(lambda: client.get(f"/jobs/{job}/").json()["status"] == "SUCCESS", 30, "the job is finished")
    assert push_service.wrong == []
    assert [len(request["source_images"]) for request in push_service.requests] == [2, 1]
    assert {request["pipeline"] for request in push_service.requests} == {SLUG}
    for request in push_service.requests:
        assert request["config"] == {"threshold": 0.5, "colour": "grey"}
        assert not request.get("detections")
    images = [image for request in push_service.requests for image in request["source_images"]]
    assert {image["id"] for image in images} == {str(capture.pk) for capture in captures}
    for image in images:
        picture = httpx.get(image["url"], follow_redirects=True)
        assert (picture.status_code, picture.content[:2]) == (200, b"\xff\xd8")
