"""Recorded calls of real workers and users, replayed byte for byte against the deployed web server."""

import asyncio
import re
from typing import Any
from urllib.parse import urljoin

import httpx
import nats
import pytest
from django.conf import settings
from nats.js.api import AckPolicy, DeliverPolicy

from ami.main.models import Project
from ami.ml.models import Pipeline, ProjectPipelineConfig
from tests.support.place import until
from tests.support.product.client_bodies import pipeline_config, results
from tests.support.product.client_deployment import PASSWORD, Deployment
from tests.support.product.push_service import SLUG as PUSH_SLUG
from tests.support.product.push_service import PushService

SLUG = "contract-pull"
ASKED = {"job_id", "name", "task_id", "queue", "flower_url"}


def register(client: httpx.Client, deployment: Deployment) -> int:
    """Register the worker's pipeline as a real worker does; return the pipeline's key."""
    body = {"processing_service_name": "contract worker", "pipelines": [pipeline_config(SLUG)]}
    answer = client.post(f"/projects/{deployment.world.project.pk}/pipelines/", json=body)
    assert answer.status_code == 201, answer.text
    assert {"timestamp", "success", "pipelines", "pipelines_created", "algorithms_created"} <= set(answer.json())
    assert answer.json()["success"] is True
    assert [pipeline["slug"] for pipeline in answer.json()["pipelines"]] == [SLUG]
    listed = client.get(f"/projects/{deployment.world.project.pk}/pipelines/").json()
    [row] = [row for row in listed if row["slug"] == SLUG]
    return int(row["id"])


def start_job(client: httpx.Client, deployment: Deployment, captures: list[Any], **fields: Any) -> int:
    """Create and start a job as the user interface does; return its key once it hands out tasks."""
    body = {
        "name": "contract",
        "project": deployment.world.project.pk,
        "job_type_key": "ml",
        "pipeline": register(client, deployment),
        "params": {"source_image_ids": [capture.pk for capture in captures]},
        "delay": 0,
        "shuffle": True,
        **fields,
    }
    answer = client.post("/jobs/", params={"start_now": 1}, json=body)
    assert answer.status_code == 201, answer.text
    job = int(answer.json()["id"])
    asked = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": f"{SLUG},another", "limit": 50}
    until(lambda: job in [row["id"] for row in client.get("/jobs/", params=asked).json()["results"]], 60, "the job")
    return job


def fetch(client: httpx.Client, job: int, most: int = 8) -> list[dict[str, Any]]:
    answer = client.post(f"/jobs/{job}/tasks/", json={"batch_size": most, "client_info": {}})
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"tasks"}
    return list(answer.json()["tasks"])


def post(client: httpx.Client, job: int, *items: tuple[dict[str, Any], Any]) -> dict[str, Any]:
    body = {
        "results": [{"reply_subject": task["reply_subject"], "result": result} for task, result in items],
        "client_info": {"hostname": "bench", "version": "1.0", "anything": {"else": [1]}},
    }
    answer = client.post(f"/jobs/{job}/result/", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_login_answers_a_token_of_forty_hex_digits(deployment: Deployment) -> None:
    with deployment.client() as client:
        body = {"email": deployment.world.user.email, "password": PASSWORD}
        answer = client.post("/auth/token/login/", json=body)
        assert (answer.status_code, set(answer.json())) == (200, {"auth_token"})
        assert re.fullmatch(r"[0-9a-f]{40}", answer.json()["auth_token"])
        assert client.post("/auth/token/login/", json={**body, "password": "wrong"}).status_code == 400
        assert client.get("/jobs/").status_code == 401


def test_worker_pulls_posts_and_finishes_a_job(deployment: Deployment, client: httpx.Client) -> None:
    job = start_job(client, deployment, deployment.captures[:3])
    asked = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": f"{SLUG},another"}
    assert client.get("/jobs/", params=asked).json() == {"count": 1, "results": [{"id": job, "pipeline_slug": SLUG}]}

    tasks = fetch(client, job)
    assert len(tasks) == 3
    for task in tasks:
        assert set(task) == {"id", "image_id", "image_url", "reply_subject"}
        assert all(isinstance(value, str) for value in task.values())
        assert task["reply_subject"].startswith(f"$JS.ACK.job_{job}.job-{job}-consumer.")
        picture = httpx.get(task["image_url"], follow_redirects=True)
        assert (picture.status_code, picture.content[:2]) == (200, b"\xff\xd8")
    assert fetch(client, job) == []

    failed, *found = tasks
    answer = post(
        client,
        job,
        (failed, {"error": "image not found", "image_id": failed["image_id"]}),
        *((task, results(SLUG, [task["image_id"]])) for task in found),
    )
    assert {name: answer[name] for name in ("status", "job_id", "results_queued")} == {
        "status": "accepted",
        "job_id": job,
        "results_queued": 3,
    }
    assert [set(row) for row in answer["tasks"]] == [{"reply_subject", "status", "task_id"}] * 3
    assert [row["reply_subject"] for row in answer["tasks"]] == [task["reply_subject"] for task in tasks]
    assert {row["status"] for row in answer["tasks"]} == {"queued"}
    assert all(row["task_id"] for row in answer["tasks"])

    until(lambda: client.get(f"/jobs/{job}/").json()["status"] == "SUCCESS", 60, "the job is finished")
    shown = client.get(f"/jobs/{job}/", params={"logs_limit": 1000}).json()
    assert isinstance(shown["logs"], list)
    assert [stage["key"] for stage in shown["progress"]["stages"]] == ["collect", "process", "results"]
    assert shown["progress"]["summary"] == {"status": "SUCCESS", "progress": 1.0}
    assert fetch(client, job) == []


def test_malformed_posts_and_jobs_without_tasks_are_a_400(deployment: Deployment, client: httpx.Client) -> None:
    job = start_job(client, deployment, deployment.captures[:1])
    [task] = fetch(client, job)
    result = {"reply_subject": task["reply_subject"], "result": results(SLUG, [task["image_id"]])}
    assert client.post(f"/jobs/{job}/result/", json=[result]).status_code == 400
    refused = client.post(f"/jobs/{job}/result/", json={"results": [{"result": {}}]}).json()["tasks"]
    assert [(each["status"], each["task_id"], each["reply_subject"]) for each in refused] == [("refused", "", "")]
    body = {"name": "x", "project": deployment.world.project.pk, "job_type_key": "regroup_events"}
    other = client.post("/jobs/", json=body).json()["id"]
    assert client.post(f"/jobs/{other}/tasks/", json={"batch_size": 1}).status_code == 400
    assert client.post(f"/jobs/{job}/cancel/").status_code == 200
    until(lambda: client.get(f"/jobs/{job}/").json()["status"] == "REVOKED", 60, "the job is cancelled")


async def look_at_nats(job: int) -> tuple[Any, Any]:
    """Return JetStream's description of the job's stream and consumer."""
    server = await nats.connect(settings.NATS_URL, connect_timeout=5, allow_reconnect=False)
    try:
        stream = server.jetstream()
        return await stream.stream_info(f"job_{job}"), await stream.consumer_info(f"job_{job}", f"job-{job}-consumer")
    finally:
        await server.close()


def test_job_has_the_recorded_stream_and_consumer(deployment: Deployment, client: httpx.Client) -> None:
    job = start_job(client, deployment, deployment.captures[:2])
    stream, consumer = asyncio.run(look_at_nats(job))
    assert stream.config.subjects == [f"job.{job}.tasks"]
    assert (stream.config.max_age, stream.state.messages) == (24 * 3600, 2)
    known = consumer.config
    assert known.durable_name == f"job-{job}-consumer"
    assert (known.ack_policy, known.deliver_policy) == (AckPolicy.EXPLICIT, DeliverPolicy.ALL)
    assert (known.ack_wait, known.max_deliver, known.max_ack_pending) == (300, 2, 1000)
    assert known.deliver_subject is None  # A pull consumer.
    first, _ = fetch(client, job)
    assert asyncio.run(look_at_nats(job))[1].num_ack_pending == 2
    post(client, job, (first, results(SLUG, [first["image_id"]])))
    until(lambda: asyncio.run(look_at_nats(job))[1].num_ack_pending == 1, 60, "the result is acknowledged")
    assert client.post(f"/jobs/{job}/cancel/").status_code == 200


@pytest.fixture
def finished(deployment: Deployment, client: httpx.Client) -> int:
    """A finished job without failed images."""
    body = {
        "name": "group",
        "project": deployment.world.project.pk,
        "job_type_key": "regroup_events",
        "deployment": deployment.world.station.pk,
    }
    job = int(client.post("/jobs/", params={"start_now": 1}, json=body).json()["id"])
    until(lambda: client.get(f"/jobs/{job}/").json()["status"] == "SUCCESS", 60, "the job is finished")
    return job


def test_people_run_retry_and_cancel_jobs(client: httpx.Client, finished: int) -> None:
    for action in ("run", "retry"):
        until(lambda: client.get(f"/jobs/{finished}/").json()["status"] == "SUCCESS", 60, "the job is finished")
        answer = client.post(f"/jobs/{finished}/{action}/")
        assert (answer.status_code, set(answer.json())) == (202, ASKED), action
        assert answer.json()["job_id"] == finished
    until(lambda: client.get(f"/jobs/{finished}/").json()["status"] == "SUCCESS", 60, "the job is finished")
    again = client.post(f"/jobs/{finished}/cancel/")
    assert (again.status_code, again.json()["status"]) == (200, "SUCCESS")


def test_people_sync_regroup_and_populate(deployment: Deployment, client: httpx.Client) -> None:
    from ami.main.models import S3StorageSource

    station, project = deployment.world.station, deployment.world.project
    assert client.post(f"/deployments/{station.pk}/sync/").status_code == 400  # It has no storage source yet.
    source = S3StorageSource.objects.create(name="nowhere", project=project, bucket="nowhere")
    type(station).objects.filter(pk=station.pk).update(data_source=source)
    made = [client.post(f"/deployments/{station.pk}/sync/")]
    answer = client.post("/deployments/sync-all/", json={"project": project.pk})
    assert answer.status_code == 202
    assert [set(row) for row in answer.json()] == [ASKED]
    made += [client.post(f"/deployments/{station.pk}/regroup-sessions/")]
    body = {"name": "set", "project": project.pk, "method": "full", "kwargs": {}}
    chosen = client.post("/captures/collections/", json=body).json()["id"]
    made += [client.post(f"/captures/collections/{chosen}/populate/")]
    assert [(each.status_code, set(each.json())) for each in made] == [(202, ASKED)] * 3
    shown = until(
        lambda: client.get("/captures/", params={"collection": chosen}).json()["count"], 60, "the set is populated"
    )
    assert shown == len(deployment.captures)
    for job in (*(each.json() for each in made), *answer.json()):
        client.post(f"/jobs/{job['job_id']}/cancel/")


def test_people_export_and_download(deployment: Deployment, client: httpx.Client) -> None:
    body = {"project": deployment.world.project.pk, "format": "occurrences_simple_csv", "filters": {}}
    answer = client.post("/exports/", json=body)
    assert answer.status_code == 201, answer.text
    export = answer.json()["id"]
    url = until(lambda: client.get(f"/exports/{export}/").json()["file_url"], 60, "the export is written")
    file = client.get(urljoin(deployment.web.url, url), follow_redirects=True)
    assert (file.status_code, file.text.count("\n") >= 1) == (200, True)


@pytest.fixture
def synchronous(deployment: Deployment):
    """The project, with its jobs pushed instead of pulled."""
    project = Project.objects.filter(pk=deployment.world.project.pk)
    before = deployment.world.project.feature_flags
    project.update(feature_flags={**before, "async_pipeline_workers": False})
    yield deployment.world.project
    project.update(feature_flags=before)


def register_service(client: httpx.Client, project: Project, service: PushService) -> int:
    """Register the service as staff do, and return the key of its pipeline."""
    body = {"name": "contract push", "project": project.pk, "endpoint_url": service.url}
    made = client.post("/ml/processing_services/", json=body)
    assert made.status_code == 201, made.text
    answer = client.post(f"/ml/processing_services/{made.json()['id']}/register_pipelines/")
    assert answer.status_code == 200, answer.text
    status = answer.json()
    assert {"timestamp", "request_successful", "pipeline_configs", "pipelines_online", "latency"} <= set(status)
    assert (status["request_successful"], status["server_live"]) == (True, True)
    assert [config["slug"] for config in status["pipeline_configs"]] == [PUSH_SLUG]
    listed = client.get(f"/projects/{project.pk}/pipelines/").json()
    [row] = [row for row in listed if row["slug"] == PUSH_SLUG]
    return int(row["id"])


def test_service_gets_requests_of_the_recorded_shape(
    deployment: Deployment, client: httpx.Client, synchronous: Project, push_service: PushService
) -> None:
    pipeline = register_service(client, synchronous, push_service)
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
    until(lambda: client.get(f"/jobs/{job}/").json()["status"] == "SUCCESS", 60, "the job is finished")
    assert push_service.wrong == []
    assert [len(request["source_images"]) for request in push_service.requests] == [2, 1]
    assert {request["pipeline"] for request in push_service.requests} == {PUSH_SLUG}
    for request in push_service.requests:
        assert request["config"] == {"threshold": 0.5, "colour": "grey"}
        assert not request.get("detections")
    images = [image for request in push_service.requests for image in request["source_images"]]
    assert {image["id"] for image in images} == {str(capture.pk) for capture in captures}
    for image in images:
        picture = httpx.get(image["url"], follow_redirects=True)
        assert (picture.status_code, picture.content[:2]) == (200, b"\xff\xd8")
