"""The scope of tokens: a worker's the worker contract of its projects, a person's the person's rights."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from rest_framework.test import APIClient

from ami.main.models import ApiToken
from ami.main.permissions import visible_projects
from ami.main.services import tokens
from ami.ml.models import ProcessingService
from tests.support.product import factories
from tests.support.product.api_addresses import API, METHODS

BASE = "/api/v2"
LIST = f"{BASE}/auth/tokens/"
REGISTRATION = {"processing_service_name": "puller", "pipelines": []}
POLL = f"{BASE}/jobs/?ids_only=1&incomplete_only=1"


def calls(tenant, job=None):
    """The requests of the worker contract in order, as (method, path, body, expected status)."""
    job = job or tenant.job.pk
    return [
        ("post", f"{BASE}/projects/{tenant.world.project.pk}/pipelines/", REGISTRATION, 201),
        ("get", f"{BASE}/projects/{tenant.world.project.pk}/pipelines/", None, 200),
        ("get", f"{POLL}&pipeline__slug__in={tenant.world.pipeline.slug}", None, 200),
        ("post", f"{BASE}/jobs/{job}/tasks/", {"batch_size": 1}, 200),
        ("post", f"{BASE}/jobs/{job}/result/", {"results": []}, 200),
    ]


def statuses(client, wanted):
    return [getattr(client, method)(address, body, format="json").status_code for method, address, body, _ in wanted]


@pytest.fixture
def no_nats(monkeypatch):
    monkeypatch.setattr("ami.jobs.services.image_claims.claim", lambda *_, **__: [])


def test_worker_and_person_both_reach_the_worker_contract(mine, no_nats):
    for client in (mine.worker(), mine.client):
        assert statuses(client, calls(mine)) == [status for *_, status in calls(mine)]


def test_worker_finds_only_the_jobs_of_its_projects(mine, theirs, no_nats):
    theirs.world.project.members.add(mine.world.user)
    person, worker = mine.client, mine.worker()
    assert person.get(POLL).json()["count"] == 2
    assert [row["id"] for row in worker.get(f"{POLL}&limit=9").json()["results"]] == [mine.job.pk]
    assert statuses(worker, calls(theirs)) == [404, 404, 200, 404, 404]
    assert worker.get(f"{POLL}&pipeline__slug__in={theirs.world.pipeline.slug}").json()["results"] == []
    assert statuses(person, calls(theirs)) == [status for *_, status in calls(theirs)]


def test_superusers_worker_has_no_more_access(mine, theirs, no_nats):
    mine.world.user.is_superuser = True
    mine.world.user.save()
    ProcessingService.objects.update(last_seen=None)
    worker = mine.worker()
    assert statuses(worker, calls(theirs)) == [404, 404, 200, 404, 404]
    assert theirs.rows["ml/processing_services"].__class__.objects.get(name="Pull theirs").last_seen is None


def test_worker_of_a_former_member_has_no_access(mine, theirs, no_nats):
    theirs.world.project.members.add(mine.world.user)
    _, key = tokens.issue(mine.world.user, scope=tokens.Scope.WORKER, projects=[theirs.world.project])
    worker = mine.client_with(key)
    assert statuses(worker, calls(theirs))[0] == 201
    theirs.world.project.members.remove(mine.world.user)
    assert statuses(worker, calls(theirs)) == [404, 404, 200, 404, 404]
    assert worker.get(POLL).json()["count"] == 0


#: The endpoints of the worker contract, with the key 1, which does not exist here.
CONTRACT = {
    ("post", f"{BASE}/auth/token/logout/"),
    ("get", f"{BASE}/projects/1/pipelines/"),
    ("post", f"{BASE}/projects/1/pipelines/"),
    ("post", f"{BASE}/jobs/1/tasks/"),
    ("post", f"{BASE}/jobs/1/result/"),
}


def test_worker_is_refused_everywhere_else(mine):
    worker, reached = mine.worker(), {}
    for address in API:
        for method in METHODS:
            answer = getattr(worker, method)(address, {}, format="json").status_code
            # 405: the method does not exist, so there is no access.
            if answer not in (403, 404, 405):
                reached[method, address] = answer
                worker = mine.worker()
    # The sign-in ignores tokens.
    signing_in = ("post", f"{BASE}/auth/token/login/")
    assert set(reached) <= CONTRACT | {signing_in}, reached
    assert reached["post", f"{BASE}/auth/token/logout/"] == 204
    assert {answer for request, answer in reached.items() if request[1].startswith(f"{BASE}/jobs/")} == set()
    for address in ("", "?ids_only=0", f"{mine.job.pk}/", f"?status={mine.job.status}"):
        assert mine.worker().get(f"{BASE}/jobs/{address}").status_code == 403
    for action in ("run", "retry", "cancel"):
        assert mine.worker().post(f"{BASE}/jobs/{mine.job.pk}/{action}/").status_code == 403


def test_logout_revokes_its_own_token_only(mine):
    user = mine.world.user
    keys = [tokens.sign_in(user) for _ in range(2)]
    assert len(set(keys)) == 2
    assert mine.client_with(keys[0]).post(f"{BASE}/auth/token/logout/").status_code == 204
    assert [mine.client_with(key).get(f"{BASE}/jobs/").status_code for key in keys] == [401, 200]
    worker = mine.worker()
    assert worker.post(f"{BASE}/auth/token/logout/").status_code == 204
    assert worker.get(POLL).status_code == 401


def test_user_creates_lists_and_revokes_tokens_and_sees_a_key_once(mine):
    client = mine.client
    body = {"name": "GPU box", "scope": "worker", "projects": [mine.world.project.pk]}
    made = client.post(LIST, body, format="json")
    assert made.status_code == 201
    key = made.json()["auth_token"]
    assert mine.client_with(key).get(POLL).status_code == 200
    listed = client.get(LIST)
    assert key not in listed.content.decode()
    assert "digest" not in listed.content.decode()
    row = next(row for row in listed.json()["results"] if row["name"] == "GPU box")
    assert (row["prefix"], row["scope"], row["projects"]) == (key[:8], "worker", [mine.world.project.pk])
    assert client.delete(f"{LIST}{row['id']}/").status_code == 204
    assert mine.client_with(key).get(POLL).status_code == 401
    assert row["id"] not in [row["id"] for row in client.get(LIST).json()["results"]]
    history = LogEntry.objects.filter(object_id=str(row["id"]), content_type__model="apitoken")
    assert [entry.user for entry in history] == [mine.world.user] * 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "worker"}, "name"),
        ({"name": "x", "scope": "worker"}, "projects"),
        ({"name": "x", "scope": "worker", "projects": [2**40]}, "projects"),
        ({"name": "x", "scope": "worker", "projects": ["THEIRS"]}, "projects"),
        ({"name": "x", "scope": "person", "projects": ["MINE"]}, "projects"),
        ({"name": "x", "scope": "king"}, "scope"),
        ({"name": "x", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ],
)
def test_invalid_token_request_is_a_400_with_its_field(mine, theirs, body, field):
    keys = {"MINE": mine.world.project.pk, "THEIRS": theirs.world.project.pk}
    if "projects" in body:
        body = {**body, "projects": [keys.get(key, key) for key in body["projects"]]}
    answer = mine.client.post(LIST, body, format="json")
    assert answer.status_code == 400
    assert field in answer.json()


def test_token_of_another_user_is_neither_shown_nor_revoked(mine, theirs):
    token, key = tokens.issue(theirs.world.user, name="secret plans")
    client = mine.client
    assert "secret plans" not in client.get(LIST).content.decode()
    assert client.delete(f"{LIST}{token.pk}/").status_code == 404
    assert theirs.client_with(key).get(LIST).status_code == 200


def test_number_of_workers_tokens_is_bounded(mine, monkeypatch):
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    body = {"name": "x", "scope": "worker", "projects": [mine.world.project.pk]}
    client = mine.client
    assert [client.post(LIST, body, format="json").status_code for _ in range(3)] == [201, 201, 400]


@pytest.mark.parametrize("header", ["Token \x00", "Token \xff", "token", "Token " + "a" * 10_000, "Token é"])
def test_invalid_header_is_a_401(db, header):
    client = APIClient(raise_request_exception=False)
    assert client.get(f"{BASE}/jobs/", HTTP_AUTHORIZATION=header).status_code == 401


def test_sessions_and_forced_users_reach_all_their_projects(mine, rf):
    request = rf.get("/")
    request.user, request.auth = mine.world.user, None
    assert list(visible_projects(request)) == [mine.world.project]


def test_concurrent_sign_ins_respect_the_maximum_of_tokens(transactional_db, monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("needs a database that several connections can wait for")
    # More than sign in between two uses of the worker's token: it is never the one that was used longest ago.
    monkeypatch.setattr(tokens, "MAX_TOKENS", 10)
    person = factories.user()
    worker = tokens.sign_in(person)
    barrier = Barrier(8)

    def sign_in_and_work(_):
        try:
            barrier.wait(timeout=30)
            for _ in range(3):
                tokens.sign_in(person)
                assert tokens.find(worker)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sign_in_and_work, range(8)))
    tokens.sign_in(person)
    assert ApiToken.objects.filter(user=person).count() <= 10
    assert tokens.find(worker)


@pytest.mark.parametrize("status", [True, False])
def test_services_url_is_shown_without_its_password(mine, status, monkeypatch):
    service = mine.rows["ml/processing_services"]
    service.endpoint_url = "http://antenna:hunter2-secret@127.0.0.1:9"
    service.save()
    path = f"{BASE}/ml/processing_services/{service.pk}/" + ("status/" if status else "")
    answer = mine.client.get(path)
    assert answer.status_code == 200
    assert "hunter2-secret" not in answer.content.decode()
    assert "http://antenna:********@127.0.0.1:9" in answer.json()["endpoint_url"]


def test_change_through_the_api_is_in_the_rows_history(mine, published):
    client, job = mine.client, mine.job
    assert client.post(f"{BASE}/jobs/{job.pk}/cancel/").status_code == 200
    assert client.patch(f"{BASE}/jobs/{job.pk}/", {"name": "new"}, format="json").status_code == 200
    assert client.post(f"{BASE}/jobs/{job.pk}/tasks/", {"batch_size": 1}, format="json").status_code == 200
    entries = LogEntry.objects.filter(object_id=str(job.pk), content_type__model="job").order_by("pk")
    assert [entry.change_message for entry in entries] == [
        "API Job cancel: answered 200",
        "API Job partial_update: answered 200",
    ]


OPERATIONS = [
    ("jobs", "run"),
    ("jobs", "cancel"),
    ("deployments", "sync"),
    ("deployments", "regroup-sessions"),
    ("captures/collections", "populate"),
    ("captures", "reprocess"),
    ("projects", "pipelines"),
    ("ml/processing_services", "check"),
    ("ml/processing_services", "register_pipelines"),
]


@pytest.mark.parametrize(("kind", "action"), OPERATIONS)
def test_every_operation_of_the_api_leaves_an_entry(mine, published, caplog, kind, action):
    caplog.set_level("INFO", "ami.audit")
    row = mine.rows[kind]
    answer = mine.client.post(f"{BASE}/{kind}/{row.pk}/{action}/", REGISTRATION, format="json")
    (entry,) = [record.getMessage() for record in caplog.records if record.name == "ami.audit"]
    assert f"user {mine.world.user.pk}" in entry
    assert str(row.pk) in entry
    assert f"answered {answer.status_code}" in entry
