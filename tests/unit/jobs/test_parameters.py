"""Query parameters of jobs: every one that clients of the origin send is honoured, and no other is dropped silently."""

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.main.models import ApiToken
from ami.main.services import tokens
from ami.ml.models import Pipeline
from tests.support.product.job_setup import World, new_world
from tests.support.product.result_messages import keep_result_messages

pytestmark = pytest.mark.sqlite

POLL = "ids_only=1&incomplete_only=1"


@pytest.fixture
def jobs(world: World) -> dict[str, Job]:
    """Three jobs with work: of two pipelines, one in the queue of a service, one failed long ago."""
    second = Pipeline.objects.create(project=world.project, name="Moth finder", slug="second")
    [capture] = world.captures(1)
    first = world.running([capture])
    other = world.running([capture])
    old = world.running([capture])
    Job.objects.filter(pk=first.pk).update(name="Alpha")
    Job.objects.filter(pk=other.pk).update(name="beta", pipeline=second, dispatch_mode="sync_api")
    Job.objects.filter(pk=old.pk).update(
        name="gamma", status=JobStatus.FAILURE, updated_at=timezone.now() - timedelta(hours=30)
    )
    return {"first": first, "other": other, "old": old}


def listed(client: APIClient, query: str) -> list[str]:
    answer = client.get(f"/api/v2/jobs/?{query}")
    assert answer.status_code == 200, answer.content
    assert "Warning" not in answer, answer["Warning"]
    return [row["name"] for row in answer.json()["results"]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("ordering=name", ["Alpha", "beta", "gamma"]),
        ("ordering=-name", ["gamma", "beta", "Alpha"]),
        ("ordering=project,-name", ["gamma", "beta", "Alpha"]),
        ("ordering=name&limit=1", ["Alpha"]),
        ("ordering=name&page_size=2", ["Alpha", "beta"]),
        ("ordering=name&page_size=2&offset=2", ["gamma"]),
        ("pipeline__slug=second", ["beta"]),
        ("pipeline__slug=nobody", []),
        ("pipeline__slug=", ["Alpha", "beta", "gamma"]),
        ("pipeline__slug__in=second,nobody", ["beta"]),
        ("pipeline__slug__in=second&pipeline__slug=second", ["beta"]),
        ("pipeline__slug__in=second&pipeline__slug=pipe-world", []),
        ("dispatch_mode=sync_api", ["beta"]),
        ("search=alph", ["Alpha"]),
        ("search=MOTH", ["beta"]),
        ("search=nothing", []),
        ("cutoff_hours=24", ["Alpha", "beta"]),
        ("cutoff_hours=48", ["Alpha", "beta", "gamma"]),
        ("incomplete_only=true", ["Alpha", "beta"]),
        ("incomplete_only=0", ["Alpha", "beta", "gamma"]),
        ("project_id=999999", []),
    ],
)
def test_each_parameter_is_honoured(client: APIClient, jobs, query: str, names: list[str]) -> None:
    found = listed(client, query)
    assert found == names if "ordering" in query else sorted(found) == sorted(names)


@pytest.mark.parametrize("name", ["project", "project_id"])
def test_both_names_of_the_project_are_one(world: World, client: APIClient, jobs, name: str) -> None:
    new_world("other").running([])
    assert len(listed(client, f"{name}={world.project.pk}")) == 3
    assert client.get(f"/api/v2/jobs/{jobs['old'].pk}/?{name}={world.project.pk}").status_code == 200
    assert client.get(f"/api/v2/jobs/{jobs['old'].pk}/?{name}=999999").status_code == 404
    answer = client.get(f"/api/v2/jobs/?project={world.project.pk}&project_id=7")
    assert list(answer.json()) == ["project_id"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("ordering=params", "ordering"),
        ("ordering=-pipeline__secret", "ordering"),
        ("cutoff_hours=-1", "cutoff_hours"),
        ("cutoff_hours=9999999", "cutoff_hours"),
        ("cutoff_hours=soon", "cutoff_hours"),
        (f"search={'x' * 201}", "search"),
        ("incomplete_only=perhaps", "incomplete_only"),
        ("ids_only=perhaps", "ids_only"),
        ("project_id=x", "project"),
        ("pipeline__slug__in=" + ",".join(map(str, range(1001))), "pipeline__slug__in"),
    ],
)
def test_value_out_of_bounds_is_a_400_with_its_name(client: APIClient, query: str, field: str) -> None:
    answer = client.get(f"/api/v2/jobs/?{query}")
    assert (answer.status_code, list(answer.json())) == (400, [field])


def test_a_poll_by_one_slug_is_given_no_other_pipelines_job(client: APIClient, jobs) -> None:
    rows = client.get(f"/api/v2/jobs/?{POLL}&pipeline__slug=pipe-world").json()["results"]
    assert rows == [{"id": jobs["first"].pk, "pipeline_slug": "pipe-world"}]
    assert client.get(f"/api/v2/jobs/?{POLL}&pipeline__slug=second").json() == {"count": 0, "results": []}


@pytest.mark.parametrize(
    ("unknown", "near"),
    [("pipeline_slug", "pipeline__slug"), ("pipeline_slug__in", "pipeline__slug__in"), ("page", "page_size")],
)
def test_unknown_filter_of_a_poll_is_a_400_with_the_nearest(client: APIClient, jobs, unknown: str, near: str) -> None:
    answer = client.get(f"/api/v2/jobs/?{POLL}&{unknown}=constant")
    assert answer.status_code == 400
    assert f"do you mean '{near}'?" in answer.json()[unknown][0]


def test_unknown_filter_of_another_list_is_a_warning_and_a_line(client: APIClient, jobs, caplog) -> None:
    answer = client.get('/api/v2/jobs/?pipline=1&%22%0aX-Other:%20é="')
    assert answer.status_code == 200
    assert answer["Warning"].startswith("299 antenna \"Unknown parameter 'pipline'; do you mean 'pipeline'?\", 299")
    assert "\n" not in answer["Warning"]
    assert answer["Warning"].count('"') == 4
    assert "Unknown parameters of /api/v2/jobs/: 'pipline'" in caplog.text


def test_unknown_parameter_of_a_write_is_a_400_and_nothing_is_written(world: World, client: APIClient) -> None:
    body = {"name": "x", "project": world.project.pk, "pipeline": world.pipeline.pk}
    answer = client.post("/api/v2/jobs/?start_nw=1", body, format="json")
    assert (answer.status_code, answer.json()["start_nw"][0]) == (
        400,
        "Unknown parameter 'start_nw'; do you mean 'start_now'?",
    )
    assert not Job.objects.exists()


def test_no_async_is_taken_with_a_warning(world: World, client: APIClient, monkeypatch) -> None:
    keep_result_messages(monkeypatch)
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda *_, **__: None)
    job = world.job(world.captures(1))
    answer = client.post(f"/api/v2/jobs/{job.pk}/run/?no_async=1&project_id={world.project.pk}&format=json")
    assert (answer.status_code, answer["Warning"]) == (
        202,
        '299 antenna "no_async has no effect: the job runs in the queue."',
    )
    assert "Warning" not in client.post(f"/api/v2/jobs/{job.pk}/run/?no_async=0")
    assert client.post(f"/api/v2/jobs/{job.pk}/run/?project_id=999999").status_code == 404


def test_a_job_is_created_with_the_origins_names(world: World, client: APIClient) -> None:
    [capture] = world.captures(1)
    body = {"name": "x", "project_id": world.project.pk, "pipeline_id": world.pipeline.pk}
    answer = client.post("/api/v2/jobs/", body | {"source_image_single_id": capture.pk}, format="json")
    assert answer.status_code == 201, answer.content
    job = Job.objects.get()
    assert (job.project, job.pipeline, job.source_image_single) == (world.project, world.pipeline, capture)
    twice = client.post("/api/v2/jobs/", body | {"pipeline": 7}, format="json")
    assert (twice.status_code, list(twice.json())) == (400, ["pipeline_id"])
    del body["project_id"]
    assert client.post(f"/api/v2/jobs/?project_id={world.project.pk}", body, format="json").status_code == 201
    assert client.post("/api/v2/jobs/", body, format="json").json() == {"project": ["This field is required."]}


def test_next_job_is_given_where_it_is_switched_on(world: World, client: APIClient, jobs, settings) -> None:
    path = "/api/v2/jobs/next/?pipeline__slug__in=pipe-world"
    assert client.get(path).status_code == 404
    settings.ANTENNA_NEXT_JOB = True
    assert client.get(path).json() == {"id": jobs["first"].pk, "pipeline_slug": "pipe-world"}
    empty = client.get("/api/v2/jobs/next/?pipeline__slug=second")
    assert (empty.status_code, empty.content) == (204, b"")
    assert client.get("/api/v2/jobs/next/?pipeline=1").status_code == 400
    assert APIClient().get(path).status_code == 401
    stranger = APIClient()
    stranger.force_authenticate(new_world("stranger").user)
    assert stranger.get(path).status_code == 204


def test_api_key_is_a_workers_token_where_it_is_switched_on(world: World, jobs, settings) -> None:
    scope = {"name": "w", "scope": ApiToken.Scope.WORKER, "projects": [world.project]}
    worker, person = tokens.issue(world.user, **scope)[1], tokens.issue(world.user, name="p")[1]

    def status(key: str, path: str = f"jobs/?{POLL}") -> int:
        return APIClient(headers={"authorization": f"Api-Key {key}"}).get(f"/api/v2/{path}").status_code

    assert status(worker) == 401
    settings.ANTENNA_API_KEY = True
    assert (status(worker), status(person), status("x" * 40), status(worker, "projects/")) == (200, 401, 401, 403)
