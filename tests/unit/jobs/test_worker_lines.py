"""Lines about workers in a job's log: fetches, posts, throughput, and that nobody is online."""

from datetime import timedelta

import pytest
from django.core.cache.backends.locmem import LocMemCache
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.models import Job, JobImage, JobLog
from ami.jobs.models.states import DispatchMode, ImageState, JobStatus
from ami.jobs.services import job_slice, worker_lines
from ami.jobs.services.jetstream import Delivery
from ami.jobs.services.transitions import move
from ami.main.models import ApiToken
from ami.main.services import tokens
from ami.ml.models import ProcessingService
from tests.support.product.job_setup import World
from tests.support.product.result_messages import keep_result_messages

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch) -> None:
    """Processes of one run share a cache, and their jobs have the same keys."""
    own = LocMemCache("lines", {})
    own.clear()
    monkeypatch.setattr(worker_lines, "cache", own)


@pytest.fixture
def key(world: World) -> str:
    return tokens.issue(world.user, scope=ApiToken.Scope.WORKER, projects=[world.project])[1]


@pytest.fixture
def worker(key: str) -> APIClient:
    return APIClient(headers={"authorization": f"Token {key}"})


def lines(job: Job, begin: str = "") -> list[str]:
    rows = JobLog.objects.filter(job=job, message__startswith=begin).order_by("pk")
    return list(rows.values_list("message", flat=True))


def test_fetch_is_one_line_with_the_fingerprint_of_the_token(world: World, worker, key, monkeypatch) -> None:
    captures = world.captures(2)
    job = world.running(captures)
    found = [Delivery(image_id=capture.pk, reply_subject=f"r{capture.pk}", deliveries=1) for capture in captures]
    monkeypatch.setattr("ami.jobs.services.jetstream.fetch", lambda *_: found)
    assert len(worker.post(f"/api/v2/jobs/{job.pk}/tasks/", {"batch_size": 8}, format="json").json()["tasks"]) == 2
    [line] = lines(job, "Tasks fetched")
    assert line == f"Tasks fetched: requested=8, delivered=2, user={world.user.email}, token_id={key[:8]}…"
    assert len(key) >= 40
    assert key[:9] not in "".join(lines(job))


def test_poll_that_gets_nothing_writes_no_row(world: World, worker, monkeypatch) -> None:
    job = world.running(world.captures(1))
    monkeypatch.setattr("ami.jobs.services.jetstream.fetch", lambda *_: [])
    before = lines(job)
    assert worker.post(f"/api/v2/jobs/{job.pk}/tasks/", {"batch_size": 8}, format="json").json()["tasks"] == []
    assert lines(job) == before


def test_poll_of_an_ended_job_is_in_the_server_log(world: World, worker, caplog) -> None:
    job = world.running(world.captures(1))
    Job.objects.filter(pk=job.pk).update(status=JobStatus.SUCCESS)
    before = lines(job)
    with caplog.at_level("INFO"):
        worker.post(f"/api/v2/jobs/{job.pk}/tasks/", {"batch_size": 8}, format="json")
    assert "the job is SUCCESS; none delivered" in caplog.text
    assert lines(job) == before


def test_post_is_one_line(world: World, worker, monkeypatch) -> None:
    keep_result_messages(monkeypatch)
    captures = world.captures(2)
    job = world.running(captures)
    results = [{"reply_subject": f"r{each.pk}", "result": world.found(each)} for each in captures]
    wrong = {"reply_subject": "", "result": world.found(captures[0]) | {"pipeline": "another"}}
    worker.post(f"/api/v2/jobs/{job.pk}/result/", {"results": [*results, wrong]}, format="json")
    [line] = lines(job, "Results posted")
    assert line.startswith(f"Results posted: queued=2, refused=1, user={world.user.email}, token_id=")


def test_session_has_no_fingerprint(world: World) -> None:
    assert worker_lines.actor(world.user, None) == f"user={world.user.email}"


def test_throughput_is_a_line_a_minute(world: World) -> None:
    job = world.running(world.captures(4))
    JobImage.objects.filter(pk__in=JobImage.objects.filter(job=job)[:1]).update(state=ImageState.PROCESSED)
    worker_lines.throughput(job)
    assert lines(job, "Throughput") == []
    job.started_at = timezone.now() - timedelta(minutes=2)
    worker_lines.throughput(job)
    worker_lines.throughput(job)
    assert lines(job, "Throughput") == ["Throughput: elapsed=2m 00s, processed=1/4, rate=0.5 imgs/min, ETA=6m 00s"]


def test_throughput_of_a_job_without_a_settled_image() -> None:
    counts = worker_lines.ImageCounts(total=3, unsettled=3)
    assert worker_lines.throughput_line(counts, 3700).endswith("processed=0/3, rate=0.0 imgs/min, ETA=unknown")
    assert "elapsed=1h 01m 40s" in worker_lines.throughput_line(counts, 3700)


def service(world: World, **values: object) -> None:
    made = ProcessingService.objects.create(name="service", **values)
    made.projects.add(world.project)
    made.pipelines.add(world.pipeline)


def started(world: World, mode: str) -> Job:
    job = world.job(world.captures(1), mode)
    assert job_slice._start(job)
    return job


NOBODY = "No worker online for this pipeline"


@pytest.mark.parametrize(
    ("mode", "values", "warned"),
    [
        (DispatchMode.ASYNC_API, None, True),
        (DispatchMode.ASYNC_API, {"age": 5}, False),
        (DispatchMode.ASYNC_API, {"age": 61}, True),
        (DispatchMode.ASYNC_API, {"age": 5, "endpoint_url": "http://s/", "last_seen_live": True}, True),
        (DispatchMode.SYNC_API, None, True),
        (DispatchMode.SYNC_API, {"age": 5}, True),
        (DispatchMode.SYNC_API, {"age": 600, "endpoint_url": "http://s/", "last_seen_live": True}, False),
        (DispatchMode.SYNC_API, {"age": 5, "endpoint_url": "http://s/", "last_seen_live": False}, True),
    ],
)
def test_start_says_that_nobody_is_online(world: World, mode, values, warned) -> None:
    if values is not None:
        values = dict(values)
        age = values.pop("age")
        service(world, last_seen=timezone.now() - timedelta(seconds=age), **values)
    job = started(world, mode)
    assert len(lines(job, NOBODY)) == warned


def test_it_is_said_once_for_each_start(world: World) -> None:
    job = started(world, DispatchMode.ASYNC_API)
    assert job_slice._start(job)
    assert move(job, JobStatus.RETRY)
    assert job_slice._start(job)
    assert len(lines(job, NOBODY)) == 1
    assert JobLog.objects.get(job=job, message__startswith=NOBODY).level == "WARNING"


def test_other_kinds_of_jobs_need_no_worker(world: World) -> None:
    job = started(world, DispatchMode.INTERNAL)
    assert lines(job, NOBODY) == []


def test_fetch_without_nats_is_one_line_a_minute(world: World, worker) -> None:
    job = world.running(world.captures(1))
    for _ in "ab":
        assert worker.post(f"/api/v2/jobs/{job.pk}/tasks/", {"batch_size": 8}, format="json").status_code == 503
    assert len(lines(job, "Tasks not fetched: ")) == 1
