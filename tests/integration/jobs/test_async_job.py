"""An asynchronous job on real NATS, from run_job to SUCCESS; tasks are called directly instead of through a broker."""

from datetime import timedelta

import pytest
import redis
from django.core.cache import cache
from django.db import OperationalError
from django.db.models import F
from rest_framework.test import APIClient

from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import jetstream, job_slice, operations
from ami.jobs.services.audits import streams
from ami.jobs.services.job_slice import Next
from ami.jobs.services.progress import progress
from ami.jobs.services.transitions import move
from ami.jobs.tasks import run_job
from ami.main.models import Classification, Detection
from ami.ml.services import heartbeats
from tests.support.place import until
from tests.support.product.job_setup import Now, World
from tests.support.product.result_messages import handle_message, keep_result_messages
from tests.support.product.results import handle_result


@pytest.fixture
def published(monkeypatch) -> list[dict[str, object]]:
    """Messages that the product published to Celery, recorded instead of sent."""
    monkeypatch.setattr("ami.ml.tasks.create_detection_images.apply_async", lambda kwargs, **_: None)
    return keep_result_messages(monkeypatch)


@pytest.fixture
def client(world: World) -> APIClient:
    client = APIClient()
    client.force_authenticate(world.user)
    return client


def started(world: World, number: int, captures: list) -> Job:
    job = world.job(captures, pk=number)
    assert job_slice.run_slice(job, "first", Now()) is Next.NOTHING
    job.refresh_from_db()
    return job


def fetch(client: APIClient, job: Job, batch: int) -> list[dict[str, str]]:
    answer = client.post(f"/api/v2/jobs/{job.pk}/tasks/", {"batch_size": batch, "client_info": {}}, format="json")
    assert answer.status_code == 200, answer.content
    return answer.json()["tasks"]


def test_pull_job_runs_from_dispatch_to_success(world: World, client: APIClient, number: int, published) -> None:
    captures = world.captures(7)
    job = started(world, number, captures)
    assert job.status == JobStatus.STARTED
    listed = client.get(
        "/api/v2/jobs/", {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": world.pipeline.slug}
    )
    assert listed.json() == {"count": 1, "results": [{"id": job.pk, "pipeline_slug": world.pipeline.slug}]}
    by_id = {str(capture.pk): capture for capture in captures}
    while tasks := fetch(client, job, 4):
        results = [
            {"reply_subject": task["reply_subject"], "result": world.found(by_id[task["image_id"]])} for task in tasks
        ]
        answer = client.post(f"/api/v2/jobs/{job.pk}/result/", {"results": results}, format="json")
        assert answer.status_code == 200, answer.content
        assert answer.json()["results_queued"] == len(tasks)
    for message in published:
        handle_message(message)
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS
    assert progress(job)["summary"] == {"status": "SUCCESS", "progress": 1.0}
    assert Detection.objects.count() == 7
    assert jetstream.consumer_state(number) is None


def work_through(client: APIClient, world: World, job: Job, published: list, captures: list, broken: str = "") -> list:
    """Fetch the job's images, post and handle a result for each, an error for the broken one; return the images."""
    by_id = {str(capture.pk): capture for capture in captures}
    handed: list[str] = []
    while tasks := fetch(client, job, 4):
        results = [
            {
                "reply_subject": task["reply_subject"],
                "result": {"error": "unreadable", "image_id": task["image_id"]}
                if task["image_id"] == broken
                else world.found(by_id[task["image_id"]]),
            }
            for task in tasks
        ]
        assert client.post(f"/api/v2/jobs/{job.pk}/result/", {"results": results}, format="json").status_code == 200
        handed += [task["image_id"] for task in tasks]
    while published:
        handle_message(published.pop(0))
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS
    return sorted(handed)


def test_second_run_hands_out_what_failed_and_with_the_flag_all(
    world: World, client: APIClient, number: int, published
) -> None:
    captures = world.captures(3)
    broken, everything = str(captures[1].pk), sorted(str(capture.pk) for capture in captures)
    jobs = []
    for run, expected in enumerate((everything, [broken], [], everything)):
        if run == 3:
            world.project.feature_flags = {**world.project.feature_flags, "reprocess_all_images": True}
            world.project.save()
        jobs.append(started(world, number + run, captures))
        assert work_through(client, world, jobs[run], published, captures, broken if run == 0 else "") == expected
    rows = Classification.objects.order_by("pk").values_list("job", "is_current")
    assert list(rows) == [(number, False)] * 2 + [(number + 1, False)] + [(number + 3, True)] * 3


def test_incident_27_settled_images_are_acknowledged_not_handed_out(
    settings, world: World, client: APIClient, number: int, published
) -> None:
    settings.NATS_TASK_TTR, settings.NATS_MAX_EXTENSIONS = 1, 0
    captures = world.captures(2)
    job = started(world, number, captures)
    assert len(fetch(client, job, 2)) == 2
    handle_result(job.pk, result=world.found(captures[0]))
    handed = []
    while not handed:
        handed = fetch(client, job, 2)
    assert [task["image_id"] for task in handed] == [str(captures[1].pk)]
    assert JobImage.objects.get(job=job, source_image=captures[1]).attempts == 2
    assert fetch(client, job, 2) == []


def test_hazard_10_redelivered_run_job_continues_without_a_reset(world: World, number: int, published) -> None:
    captures = world.captures(5)
    job = world.job(captures, pk=number)
    assert job_slice.run_slice(job, "first", Now(steps=1)) is Next.SUCCESSOR
    assert JobImage.objects.filter(job=job).count() == 5
    job.refresh_from_db()
    job_slice.run_slice(job, "second", Now())
    [delivery] = jetstream.fetch(number, 1)
    handle_result(number, result=world.found(captures[[c.pk for c in captures].index(delivery.image_id)]))
    job.refresh_from_db()
    job_slice.run_slice(job, "second", Now())
    states = sorted(JobImage.objects.filter(job=job).values_list("state", flat=True))
    assert states == [ImageState.PROCESSED] + [ImageState.PUBLISHED] * 4
    assert len(jetstream.fetch(number, 10)) == 4


def test_incident_42_cancelled_job_has_no_stream_and_no_tasks(
    world: World, client: APIClient, number: int, published
) -> None:
    job = world.job(world.captures(3), pk=number)
    assert job_slice.run_slice(job, "first", Now(steps=1)) is Next.SUCCESSOR
    assert operations.cancel(job)
    assert job_slice.run_slice(job, "second", Now()) is Next.NOTHING
    job.refresh_from_db()
    assert job.status == JobStatus.REVOKED
    assert jetstream.consumer_state(number) is None
    assert fetch(client, job, 3) == []


def test_incident_30_a_poison_image_fails_alone(
    settings, world: World, client: APIClient, number: int, published
) -> None:
    settings.NATS_TASK_TTR, settings.NATS_MAX_DELIVER, settings.NATS_MAX_EXTENSIONS = 1, 1, 0
    from ami.jobs.services.audits import lost_images

    captures = world.captures(3)
    job = started(world, number, captures)
    assert len(fetch(client, job, 3)) == 3
    for capture in captures[:2]:
        handle_result(job.pk, result=world.found(capture))
    job.refresh_from_db()
    while job.status == JobStatus.STARTED:
        fetch(client, job, 3)
        lost_images.fail_lost_images()
        job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS
    assert JobImage.objects.get(job=job, source_image=captures[2]).error == "lost after 1 deliveries"


def test_hazard_11_unreachable_nats_while_publishing_fails_no_job(
    settings, world: World, number: int, published
) -> None:
    from ami.jobs.errors import NatsUnavailable

    job = world.job(world.captures(3), pk=number)
    url, settings.NATS_URL = settings.NATS_URL, "nats://127.0.0.1:1"
    jetstream.close()
    with pytest.raises(NatsUnavailable):
        job_slice.run_slice(job, "first", Now())
    job.refresh_from_db()
    assert (job.status, job.holder) == (JobStatus.STARTED, "")
    settings.NATS_URL = url
    jetstream.close()
    job_slice.run_slice(job, "first", Now())
    assert len(jetstream.fetch(number, 10)) == 3


def test_unreachable_nats_is_a_503_with_retry_after(settings, world: World, client: APIClient, number: int) -> None:
    job = world.running(world.captures(1), pk=number)
    url, settings.NATS_URL = settings.NATS_URL, "nats://127.0.0.1:1"
    jetstream.close()
    answer = client.post(f"/api/v2/jobs/{job.pk}/tasks/", {"batch_size": 1}, format="json")
    assert answer.status_code == 503
    assert answer["Retry-After"]
    settings.NATS_URL = url
    jetstream.close()


def test_hazard_12_messages_of_a_deleted_stream_are_republished(
    world: World, number: int, published, monkeypatch
) -> None:
    from ami.jobs.services.audits import lost_images

    nudged: list[int] = []
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda kwargs, **_: nudged.append(kwargs["job_id"]))
    job = started(world, number, world.captures(3))
    jetstream.delete_job(number)
    assert lost_images.republish_expired_images().fixed == 1
    assert nudged == [number]
    job.refresh_from_db()
    job_slice.run_slice(job, "again", Now())
    assert len(jetstream.fetch(number, 10)) == 3


def test_incident_45_a_result_is_stored_before_it_is_published_and_once(
    world: World, client: APIClient, number: int, published
) -> None:
    [capture] = world.captures(1)
    job = started(world, number, [capture])
    [task] = fetch(client, job, 1)
    body = {"results": [{"reply_subject": task["reply_subject"], "result": world.found(capture)}]}
    first = client.post(f"/api/v2/jobs/{number}/result/", body, format="json").json()
    assert set(published[0]) == {"job_id", "result_ids", "project_id"}
    handle_message(published.pop())
    again = client.post(f"/api/v2/jobs/{number}/result/", body, format="json").json()
    assert again["tasks"] == first["tasks"]
    assert published == []
    assert StoredResult.objects.filter(job=job).count() == 1


def test_a_failed_jobs_stream_is_deleted_with_it(world: World, number: int, published) -> None:
    job = started(world, number, world.captures(2))
    assert job_slice.fail(job, "broken")
    assert jetstream.consumer_state(number) is None


def test_incident_22_result_after_its_lease_is_saved_exactly_once(
    settings, world: World, client: APIClient, number: int, published
) -> None:
    settings.NATS_TASK_TTR, settings.NATS_MAX_EXTENSIONS = 1, 0
    [capture] = world.captures(1)
    job = started(world, number, [capture])
    [slow] = fetch(client, job, 1)
    again = until(lambda: fetch(client, job, 1), 60)
    for task in (slow, *again):
        body = {"results": [{"reply_subject": task["reply_subject"], "result": world.found(capture)}]}
        assert client.post(f"/api/v2/jobs/{number}/result/", body, format="json").status_code == 200
    assert len(published) == 2
    for message in published:
        handle_message(message)
    job.refresh_from_db()
    assert (job.status, Detection.objects.count()) == (JobStatus.SUCCESS, 1)


def test_incident_26_losing_the_cache_does_not_affect_a_job(
    settings, world: World, client: APIClient, number: int, published
) -> None:
    captures = world.captures(4)
    job = started(world, number, captures)
    by_id = {str(capture.pk): capture for capture in captures}
    there = settings.CACHES
    unreachable = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    }
    for handled, caches in enumerate((there, unreachable, unreachable, there), 1):
        settings.CACHES = caches
        heartbeats._last.clear()
        if caches is unreachable:
            with pytest.raises(redis.exceptions.ConnectionError):
                cache.get("x")
        query = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": world.pipeline.slug}
        assert client.get("/api/v2/jobs/", query).json()["count"] == 1
        [task] = fetch(client, job, 1)
        body = {"results": [{"reply_subject": task["reply_subject"], "result": world.found(by_id[task["image_id"]])}]}
        assert client.post(f"/api/v2/jobs/{number}/result/", body, format="json").status_code == 200
        handle_message(published.pop())
        assert JobImage.objects.filter(job=job, state=ImageState.PROCESSED).count() == handled
    job.refresh_from_db()
    assert (job.status, Detection.objects.count()) == (JobStatus.SUCCESS, 4)


def test_incident_38_one_worker_serves_two_jobs_in_turn(
    world: World, client: APIClient, number: int, published, settings
) -> None:
    jobs = [started(world, pk, world.captures(6)) for pk in (number, number + 1)]
    settings.ANTENNA_PULL_TURN_SECONDS = 60
    query = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": world.pipeline.slug}
    served: list[int] = []
    for _ in range(4):
        [found] = client.get("/api/v2/jobs/", query).json()["results"]
        [job] = [job for job in jobs if job.pk == found["id"]]
        served.append(job.pk)
        assert len(fetch(client, job, 2)) == 2
        assert len(fetch(client, job, 1)) == 1
        long_ago = F("served_at") - timedelta(seconds=61)
        Job.objects.exclude(served_at=None).update(served_at=long_ago)
        assert fetch(client, job, 1) == [], "the other one waits"
    assert served == served[:2] * 2
    assert len(set(served)) == 2
    jetstream.delete_job(number + 1)


def test_incident_29_error_after_publishing_keeps_job_and_messages(
    world: World, client: APIClient, number: int, published, monkeypatch
) -> None:
    captures = world.captures(5)
    job = world.job(captures, pk=number)
    in_flight: list[dict[str, str]] = []

    class Breaks(Now):
        def over(self) -> bool:
            if not in_flight and JobImage.objects.filter(job=job, state=ImageState.PUBLISHED).exists():
                in_flight.extend(fetch(client, job, 1))
                raise OperationalError("the connection was reset")
            return False

    monkeypatch.setattr("ami.jobs.tasks.Slice", lambda task, **_: Breaks())
    monkeypatch.setattr("ami.jobs.services.pull_dispatch.CHUNK", 2)
    run_job.apply(kwargs={"job_id": number}, throw=False)
    job.refresh_from_db()
    assert (job.status, job.tries, len(in_flight)) == (JobStatus.STARTED, 1, 1)
    by_id = {str(capture.pk): capture for capture in captures}
    tasks = in_flight + fetch(client, job, 10)
    assert {task["image_id"] for task in tasks} == set(by_id)
    for task in tasks:
        found = world.found(by_id[task["image_id"]])
        handle_result(number, reply_subject=task["reply_subject"], result=found)
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS


def test_incident_31_audit_deletes_only_streams_of_ended_jobs(
    world: World, number: int, published, monkeypatch
) -> None:
    # The server may be shared: what the audit sees, and so what it may delete, is this test's own stream.
    every = jetstream.job_streams
    monkeypatch.setattr(jetstream, "job_streams", lambda: [stream for stream in every() if stream.job_id == number])
    jetstream.create_stream(number)
    assert streams.delete_orphan_streams().as_dict() == {"checked": 0, "fixed": 0, "unfixable": 0}
    monkeypatch.setattr(streams, "ORPHAN_SECONDS", -10)
    assert streams.delete_orphan_streams().fixed == 1
    assert jetstream.consumer_state(number) is None
    job = started(world, number, world.captures(1))
    assert streams.delete_orphan_streams().as_dict() == {"checked": 1, "fixed": 0, "unfixable": 0}
    assert len(jetstream.fetch(number, 5)) == 1
    assert move(job, JobStatus.FAILURE)
    assert streams.delete_orphan_streams().fixed == 1
    assert jetstream.consumer_state(number) is None
    assert streams.delete_orphan_streams().checked == 0
