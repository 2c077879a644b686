"""The jobs API: the workers' contract, permissions and errors."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rest_framework.test import APIClient

from ami.admission.models import Call
from ami.jobs.models import Job, StoredResult
from ami.main.models import User
from config.celery_app import app
from tests.support.product.job_setup import World, new_world


@pytest.fixture
def published(monkeypatch) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    for name in ("run_job", "process_nats_pipeline_result", "process_nats_pipeline_results"):
        monkeypatch.setattr(f"ami.jobs.tasks.{name}.apply_async", lambda kwargs, **_: messages.append(kwargs))
    return messages


def post(client: APIClient, path: str, body: object):
    return client.post(f"/api/v2/{path}", body, format="json")


def test_stranger_sees_nothing_and_anonymous_calls_are_refused(world: World) -> None:
    job = world.running(world.captures(1))
    stranger = APIClient()
    assert stranger.get("/api/v2/jobs/").status_code in (401, 403)
    stranger.force_authenticate(User.objects.create_user("stranger@example.org"))
    assert stranger.get("/api/v2/jobs/").json()["count"] == 0
    for action in ("tasks", "result", "run", "retry", "cancel"):
        assert post(stranger, f"jobs/{job.pk}/{action}/", {}).status_code == 404


def test_member_without_superuser_rights_may_be_a_worker(
    world: World, published, django_capture_on_commit_callbacks
) -> None:
    worker = User.objects.create_user("worker@example.org")
    world.project.members.add(worker)
    client = APIClient()
    client.force_authenticate(worker)
    [capture] = world.captures(1)
    job = world.running([capture])
    item = {"reply_subject": "r", "result": world.found(capture)}
    with django_capture_on_commit_callbacks(execute=True):
        answer = post(client, f"jobs/{job.pk}/result/", {"results": [item], "client_info": {}})
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"status", "job_id", "results_queued", "tasks"}
    assert body["tasks"][0]["status"] == "queued"
    of_job = {"job_id": job.pk, "project_id": job.project_id}
    assert published == [{"result_ids": [StoredResult.objects.get().pk], **of_job}]


def test_incident_45_a_body_above_the_cap_is_a_413(settings, world: World, client: APIClient) -> None:
    settings.ANTENNA_RESULT_MAX_BYTES = 100
    job = world.running(world.captures(1))
    answer = post(client, f"jobs/{job.pk}/result/", {"results": [], "client_info": {"x": "y" * 200}})
    assert answer.status_code == 413


@pytest.mark.sqlite
def test_results_are_taken_while_the_broker_is_away_each_with_its_call(transactional_db) -> None:
    world = new_world()
    client = APIClient()
    client.force_authenticate(world.user)
    [capture] = world.captures(1)
    job = world.running([capture])
    body = {"results": [{"reply_subject": "r", "result": world.found(capture)}]}
    with broker_at(unused_broker()):
        answer = post(client, f"jobs/{job.pk}/result/", body)
    assert answer.status_code == 200
    [stored] = StoredResult.objects.filter(job=job, handled_at=None)
    [call] = Call.objects.all()
    assert (call.task_id, call.fair_key) == (stored.batch_id, f"project_id={job.project_id}")
    assert answer.json()["tasks"][0]["task_id"] == stored.task_id


def test_result_without_its_call_is_not_stored(transactional_db, monkeypatch) -> None:
    world = new_world()
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(world.user)

    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr("ami.jobs.tasks.process_nats_pipeline_results.apply_async", fail)
    [capture] = world.captures(1)
    job = world.running([capture])
    body = {"results": [{"reply_subject": "r", "result": world.found(capture)}]}
    assert post(client, f"jobs/{job.pk}/result/", body).status_code == 500
    assert not StoredResult.objects.exists()


def unused_broker() -> str:
    """Return the URL of a broker that nothing listens for."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"amqp://user:secret@127.0.0.1:{unused.getsockname()[1]}//"


@contextmanager
def broker_at(url: str) -> Iterator[None]:
    """Point this process's Celery application at a broker URL for a while."""
    before = {name: app.conf[name] for name in ("broker_url", "broker_read_url", "broker_write_url")}
    pools = app._pool, app.amqp._producer_pool
    app._pool = app.amqp._producer_pool = None
    app.conf.update(dict.fromkeys(before, url))
    try:
        yield
    finally:
        app.conf.update(before)
        app._pool, app.amqp._producer_pool = pools


@pytest.mark.sqlite
def test_job_is_created_and_run_while_the_broker_is_away(transactional_db) -> None:
    world = new_world()
    client = APIClient()
    client.force_authenticate(world.user)
    body = {"name": "mine", "project": world.project.pk, "pipeline": world.pipeline.pk}
    with broker_at(unused_broker()):
        assert post(client, "jobs/?start_now=1", body).status_code == 201
        started = Job.objects.get()
        assert post(client, "jobs/", body).status_code == 201
        waiting = Job.objects.exclude(pk=started.pk).get()
        assert post(client, f"jobs/{waiting.pk}/run/", {}).status_code == 202
    keys = Call.objects.order_by("pk").values_list("key_text", "fair_key")
    of_project = f'"project_id":{world.project.pk},"service_id":null'
    fair_key = f"project_id={world.project.pk}"
    assert list(keys) == [(f'{{"job_id":{job.pk},{of_project}}}', fair_key) for job in (started, waiting)]


def test_only_an_active_async_job_hands_out_tasks(world: World, client: APIClient) -> None:
    pushed = world.running(world.captures(1), mode="sync_api")
    assert post(client, f"jobs/{pushed.pk}/tasks/", {"batch_size": 1}).status_code == 400
    idle = world.job(world.captures(1))
    assert post(client, f"jobs/{idle.pk}/tasks/", {"batch_size": 1}).json() == {"tasks": []}
    assert post(client, f"jobs/{idle.pk}/tasks/", {"batch_size": 0}).status_code == 400


def test_unreachable_nats_is_a_503(world: World, client: APIClient) -> None:
    job = world.running(world.captures(1))
    answer = post(client, f"jobs/{job.pk}/tasks/", {"batch_size": 1})
    assert answer.status_code == 503
    assert answer["Retry-After"]


@pytest.mark.sqlite
def test_incident_38_a_poller_gets_the_jobs_that_have_work_in_turn(world: World, client: APIClient) -> None:
    busy = {world.running(world.captures(1)).pk for _ in range(5)}
    world.job(world.captures(1))
    query = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": f"{world.pipeline.slug},other"}
    for _ in range(3):
        seen = set()
        for _ in range(5):
            answer = client.get("/api/v2/jobs/", query).json()
            assert (answer["count"], len(answer["results"])) == (5, 1)
            seen.add(answer["results"][0]["id"])
        assert seen == busy, "each in turn"
    assert len(client.get("/api/v2/jobs/", {**query, "limit": 4}).json()["results"]) == 4


def test_creating_with_start_now_and_the_progress_in_a_list(world: World, client: APIClient, published) -> None:
    [capture] = world.captures(1)
    body = {
        "name": "mine",
        "project": world.project.pk,
        "pipeline": world.pipeline.pk,
        "source_image_single": capture.pk,
    }
    answer = post(client, "jobs/?start_now=1", body)
    assert answer.status_code == 201, answer.content
    assert answer.json()["status"] == "PENDING"
    assert answer.json()["dispatch_mode"] == "async_api"
    listed = client.get("/api/v2/jobs/").json()
    assert [stage["key"] for stage in listed["results"][0]["progress"]["stages"]] == ["collect", "process", "results"]
    job = Job.objects.get()
    assert len(client.get(f"/api/v2/jobs/{job.pk}/?logs_limit=99999").json()["logs"]) == 1
    assert post(client, f"jobs/{job.pk}/cancel/", {}).json()["status"] == "REVOKED"
    again = post(client, f"jobs/{job.pk}/cancel/", {})
    assert (again.status_code, again.json()["status"]) == (200, "REVOKED")
    assert post(client, f"jobs/{job.pk}/retry/", {}).status_code == 202


@pytest.mark.parametrize("field", ["job_type_key", "pipeline", "params", "source_image_single"])
def test_a_wrong_job_is_a_400_that_names_the_field(world: World, client: APIClient, field: str) -> None:
    wrong = {"job_type_key": "nonsense", "pipeline": 10**6, "params": {"source_image_ids": ["x"]}}
    body = {"name": "x", "project": world.project.pk, "pipeline": world.pipeline.pk, field: wrong.get(field, 10**6)}
    answer = post(client, "jobs/", body)
    assert answer.status_code == 400
    assert set(answer.json()) == {field}
