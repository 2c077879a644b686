"""The core's REST API."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from ami.jobs.models import Job
from ami.main.models import ApiToken, Deployment, S3StorageSource, Site, SourceImageCollection
from tests.support.product import factories

pytestmark = pytest.mark.django_db
BASE = "/api/v2"


def as_user(user):
    client = APIClient()
    client.force_authenticate(user)
    return client


# --- signing in


def test_sign_in_returns_a_token_and_sign_out_revokes_it():
    person = factories.user()
    client = APIClient()
    body = {"email": person.email.upper(), "password": "secret-word"}
    token = client.post(f"{BASE}/auth/token/login/", body, format="json").json()["auth_token"]
    assert len(token) == 40
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    assert client.get(f"{BASE}/projects/").status_code == 200
    assert client.post(f"{BASE}/auth/token/logout/").status_code == 204
    assert client.get(f"{BASE}/projects/").status_code == 401
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("email", ["unknown@example.org", None])
def test_a_wrong_password_and_an_unknown_address_answer_the_same(email):
    body = {"email": email or factories.user().email, "password": "wrong"}
    answer = APIClient().post(f"{BASE}/auth/token/login/", body, format="json")
    assert answer.status_code == 400
    assert "E-mail address or password is wrong." in answer.content.decode()


def test_a_missing_field_is_named():
    answer = APIClient().post(f"{BASE}/auth/token/login/", {"email": "no address"}, format="json")
    assert answer.status_code == 400
    assert {"email", "password"} <= set(answer.json())


def test_guessing_passwords_is_throttled():
    person = factories.user()
    codes = [
        APIClient()
        .post(f"{BASE}/auth/token/login/", {"email": person.email, "password": "wrong"}, format="json")
        .status_code
        for _ in range(12)
    ]
    assert codes[:10] == [400] * 10
    assert codes[10:] == [429] * 2


@pytest.mark.parametrize(
    "path",
    ["projects", "deployments", "events", "captures", "captures/collections", "detections", "occurrences", "taxa"],
)
def test_reading_needs_a_token(path):
    assert APIClient().get(f"{BASE}/{path}/").status_code == 401


# --- who sees and does what


def test_non_member_finds_nothing(project):
    station = factories.station(project)
    found = factories.occurrence(factories.capture(station))
    stranger = as_user(factories.user())
    paths = {
        "projects": project.pk,
        "deployments": station.pk,
        "captures": found.detection.source_image_id,
        "detections": found.detection_id,
        "occurrences": found.pk,
    }
    for path, pk in paths.items():
        assert stranger.get(f"{BASE}/{path}/").json()["count"] == 0
        assert stranger.get(f"{BASE}/{path}/{pk}/").status_code == 404
    assert stranger.post(f"{BASE}/deployments/{station.pk}/sync/").status_code == 404


def test_only_the_owner_changes_settings_or_deletes(project, client):
    member = factories.user()
    project.members.add(member)
    station = factories.station(project)
    theirs = as_user(member)
    assert theirs.get(f"{BASE}/projects/").json()["count"] == 1
    assert theirs.patch(f"{BASE}/deployments/{station.pk}/", {"name": "New"}, format="json").status_code == 200
    assert theirs.patch(f"{BASE}/projects/{project.pk}/", {"name": "New"}, format="json").status_code == 403
    assert theirs.delete(f"{BASE}/deployments/{station.pk}/").status_code == 403
    assert client.patch(f"{BASE}/projects/{project.pk}/", {"name": "New"}, format="json").status_code == 200
    assert client.delete(f"{BASE}/deployments/{station.pk}/").status_code == 204


def test_a_project_with_many_members_is_listed_once(project, client):
    project.members.add(*(factories.user() for _ in range(3)))
    superuser = as_user(factories.user(is_superuser=True))
    assert client.get(f"{BASE}/projects/").json()["count"] == 1
    assert superuser.get(f"{BASE}/projects/").json()["count"] == 1


def test_station_cannot_be_put_into_another_users_project(client):
    answer = client.post(f"{BASE}/deployments/", {"name": "S", "project": factories.project().pk}, format="json")
    assert answer.status_code == 400
    assert "project" in answer.json()


def test_storage_source_and_site_of_another_project_are_refused(project, client):
    other = factories.project()
    source = S3StorageSource.objects.create(name="Theirs", project=other)
    site = Site.objects.create(name="Theirs", project=other)
    for field, row in {"data_source": source, "research_site": site}.items():
        body = {"name": "S", "project": project.pk, field: row.pk}
        answer = client.post(f"{BASE}/deployments/", body, format="json")
        assert answer.status_code == 400
        assert field in answer.json()


def test_creator_owns_the_project(client, owner):
    answer = client.post(f"{BASE}/projects/", {"name": "Mine", "feature_flags": {"tags": True}}, format="json")
    assert answer.status_code == 201
    assert answer.json()["owner"] == owner.pk
    assert answer.json()["feature_flags"]["async_pipeline_workers"] is True


# --- bad input


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("projects", {"name": "x" * 256}, "name"),
        ("projects", {"name": "P", "session_time_gap_seconds": 0}, "session_time_gap_seconds"),
        ("projects", {"name": "P", "default_filters_score_threshold": 1.5}, "default_filters_score_threshold"),
        ("projects", {"name": "P", "feature_flags": {"fly": True}}, "feature_flags"),
        ("projects", {"name": "P", "feature_flags": []}, "feature_flags"),
        ("deployments", {"name": "S", "time_zone": "Mars"}, "time_zone"),
        ("deployments", {"name": "S", "latitude": 91}, "latitude"),
        pytest.param(
            "deployments",
            {"name": "S", "data_source_regex": "("},
            "data_source_regex",
            marks=pytest.mark.processes,
        ),
        ("deployments", {"name": "S", "data_source_time_format": "%d-%m-%H-%M"}, "data_source_time_format"),
        ("captures/collections", {"name": "C", "method": "random", "kwargs": {}}, "kwargs"),
        ("captures/collections", {"name": "C", "method": "full", "kwargs": [1]}, "kwargs"),
        ("captures/collections", {"name": "C", "method": "guess"}, "method"),
    ],
)
def test_bad_input_is_refused_by_field(client, project, path, body, field):
    body = {**body, **({} if path == "projects" else {"project": project.pk})}
    answer = client.post(f"{BASE}/{path}/", body, format="json")
    assert answer.status_code == 400
    assert field in answer.json()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("deployment=abc", "deployment"),
        ("deployment=99999999999999999999", "deployment"),
        ("taken_after=yesterday", "taken_after"),
        ("offset=99999999999", "offset"),
    ],
)
def test_bad_filters_are_refused_by_name(client, query, field):
    answer = client.get(f"{BASE}/captures/?{query}")
    assert answer.status_code == 400
    assert field in answer.json()


def test_a_page_has_an_upper_bound(client, project, monkeypatch):
    monkeypatch.setattr("ami.main.api.lists.BoundedPagination.max_limit", 2)
    factories.captures(factories.station(project), 5)
    answer = client.get(f"{BASE}/captures/?limit=1000000").json()
    assert (answer["count"], len(answer["results"])) == (5, 2)


def test_a_key_too_large_for_a_database_is_not_found(client):
    assert client.get(f"{BASE}/captures/{10**17}/").status_code == 404
    assert client.get(f"{BASE}/captures/{10**30}/").status_code == 404


# --- lists


@pytest.mark.sqlite
def test_filters_narrow_a_list(client, project):
    stations = [factories.station(project) for _ in "ab"]
    species = factories.taxon()
    found = factories.occurrence(factories.capture(stations[0]), species, 0.9)
    factories.occurrence(factories.capture(stations[1]), species, 0.2)
    one = client.get(f"{BASE}/occurrences/?taxon={species.pk}&score_min=0.5").json()
    assert [row["id"] for row in one["results"]] == [found.pk]
    assert client.get(f"{BASE}/captures/?deployment={stations[0].pk}").json()["count"] == 1
    assert client.get(f"{BASE}/detections/?deployment={stations[1].pk}").json()["count"] == 1


def test_null_markers_are_not_shown(client, project):
    factories.null_marker(factories.capture(factories.station(project)))
    assert client.get(f"{BASE}/detections/").json()["count"] == 0


@pytest.mark.parametrize("path", ["occurrences", "detections", "captures", "deployments", "events", "projects"])
def test_queries_of_a_list_do_not_grow_with_rows(client, project, owner, path):
    def add(number):
        for _ in range(number):
            station = factories.station(factories.project(owner=owner))
            factories.occurrence(factories.capture(station), factories.taxon())

    add(2)
    with CaptureQueriesContext(connection) as few:
        assert client.get(f"{BASE}/{path}/").status_code == 200
    add(5)
    with CaptureQueriesContext(connection) as many:
        client.get(f"{BASE}/{path}/")
    assert len(many) == len(few)


# --- what a person starts


def test_sync_returns_job_task_queue_and_link(client, project):
    source = S3StorageSource.objects.create(name="Folder", project=project)
    station = factories.station(project, data_source=source)
    answer = client.post(f"{BASE}/deployments/{station.pk}/sync/")
    assert answer.status_code == 202
    body = answer.json()
    assert body["queue"] == "antenna-interactive"
    assert body["flower_url"].endswith(f"/task/{body['task_id']}")
    job = Job.objects.get(pk=body["job_id"])
    assert (job.job_type_key, job.deployment, job.task_id) == ("data_storage_sync", station, body["task_id"])


def test_a_station_without_a_source_cannot_be_synced(client, project):
    answer = client.post(f"{BASE}/deployments/{factories.station(project).pk}/sync/")
    assert answer.status_code == 400
    assert "data_source" in answer.json()


def test_syncing_all_makes_one_job_per_station_with_a_source(client, project):
    source = S3StorageSource.objects.create(name="Folder", project=project)
    for _ in range(3):
        factories.station(project, data_source=source)
    factories.station(project)
    answer = client.post(f"{BASE}/deployments/sync-all/", {"project": project.pk}, format="json")
    assert answer.status_code == 202
    assert len(answer.json()) == 3 == Job.objects.count()


def test_sync_all_refuses_another_users_project(client):
    answer = client.post(f"{BASE}/deployments/sync-all/", {"project": factories.project().pk}, format="json")
    assert answer.status_code == 400
    assert "project" in answer.json()


def test_regroup_and_populate_create_their_jobs(client, project):
    station = factories.station(project)
    chosen = SourceImageCollection.objects.create(name="Set", project=project)
    assert client.post(f"{BASE}/deployments/{station.pk}/regroup-sessions/").status_code == 202
    assert client.post(f"{BASE}/captures/collections/{chosen.pk}/populate/").status_code == 202
    kinds = set(Job.objects.values_list("job_type_key", flat=True))
    assert kinds == {"regroup_events", "populate_captures_collection"}


def test_a_station_stays_in_its_project(client, project, owner):
    station = factories.station(project)
    body = {"project": factories.project(owner=owner).pk}
    assert client.patch(f"{BASE}/deployments/{station.pk}/", body, format="json").status_code == 400
    assert Deployment.objects.get().project == project
