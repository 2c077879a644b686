"""Concurrent writers on the real database: one set of rows, one final status, deadlocks are retried."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError, connection, transaction
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import claim_extension, db_interrupt, job_slice, stored_results
from ami.jobs.services import job_results as saving
from ami.jobs.services.transitions import move
from ami.jobs.signals import job_status_changed
from ami.jobs.tasks import process_nats_pipeline_result
from ami.main.models import Classification, Detection, Occurrence, Taxon
from tests.support.product.job_setup import Now, World
from tests.support.product.result_messages import handle_message, keep_result_messages
from tests.support.product.results import handle_result

AT_ONCE = 8
TRIES = 6


@pytest.fixture(autouse=True)
def nats_away(settings, monkeypatch):
    """Publish no tasks for crops; these tests are about the database."""
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        pytest.skip("needs a database that several connections can wait for: SQLite in memory refuses at once")
    settings.NATS_URL = ""
    monkeypatch.setattr("ami.ml.tasks.create_detection_images.apply_async", lambda kwargs, **_: None)


def at_once(work: Callable[[int], Any], number: int = AT_ONCE) -> list[Any]:
    """Run ``work`` in several threads that start together; a deadlock is retried, as the task does."""
    barrier = Barrier(number)

    def run(index: int) -> Any:
        try:
            barrier.wait(timeout=60)
            for attempt in range(TRIES):
                try:
                    return work(index)
                except OperationalError:
                    if attempt == TRIES - 1:
                        raise
        finally:
            connection.close()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_hazard_4_concurrent_duplicates_of_a_result_are_one_set_of_rows(world: World) -> None:
    captures = world.captures(3)
    job = world.running(captures)
    result = world.found(*captures, boxes=4)
    at_once(lambda _: handle_result(job.pk, result=result))
    assert Detection.objects.count() == Classification.objects.count() == Occurrence.objects.count() == 12
    assert Taxon.objects.count() == 1
    assert sum(JobImage.objects.values_list("detections_count", flat=True)) == 12
    assert Job.objects.get(pk=job.pk).status == JobStatus.SUCCESS


def test_two_jobs_over_the_same_captures_at_once_are_one_set_of_rows(world: World) -> None:
    captures = world.captures(4)
    jobs = [world.running(captures) for _ in range(4)]
    results = [world.found(*order, boxes=3) for order in (captures, captures[::-1])]
    at_once(lambda index: handle_result(jobs[index % 4].pk, result=results[index % 2]))
    assert Detection.objects.count() == Occurrence.objects.count() == 12
    assert set(Job.objects.values_list("status", flat=True)) == {JobStatus.SUCCESS}


def test_incident_34_many_results_of_one_job_at_once_settle_each_image_once(world: World) -> None:
    captures = world.captures(24)
    job = world.running(captures)
    finished: list[str] = []
    job_status_changed.connect(listener := lambda new, **_: finished.append(new), weak=False)
    try:
        at_once(lambda i: [handle_result(job.pk, result=world.found(c)) for c in captures[i::AT_ONCE]])
    finally:
        job_status_changed.disconnect(listener)
    assert finished == [JobStatus.SUCCESS]
    assert not JobImage.objects.unsettled().exists()


def test_incident_40_one_of_many_final_statuses_wins(world: World) -> None:
    job = world.job([])
    move(job, JobStatus.STARTED)
    ends = [JobStatus.SUCCESS, JobStatus.FAILURE]
    won = at_once(lambda i: move(Job.objects.get(pk=job.pk), ends[i % 2]))
    assert won.count(True) == 1


def test_one_of_many_workers_gets_the_lease(world: World) -> None:
    job = world.job([])
    won = at_once(lambda i: job_slice.claim(Job.objects.get(pk=job.pk), f"owner-{i}"))
    assert won.count(True) == 1


def test_incident_45_the_same_post_at_once_is_stored_once(world: World) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    rows = at_once(lambda _: stored_results.store(job, "reply", world.found(capture)))
    assert len({row.pk for row in rows}) == StoredResult.objects.count() == 1
    assert json.loads(stored_results.load(rows[0]))["result"]["pipeline"] == world.pipeline.slug


def test_incident_34_posts_and_ingest_do_not_wait_for_the_job_row(world: World, settings) -> None:
    captures = world.captures(21)
    job = world.running(captures)
    written: list[str] = []

    def note(execute, sql, params, many, context):
        if sql.startswith('UPDATE "jobs_job"'):
            written.append(sql)
        return execute(sql, params, many, context)

    def post(index: int) -> int:
        client = APIClient()
        client.force_authenticate(world.user)
        item = {"reply_subject": f"reply-{index}", "result": world.found(captures[index])}
        with impatient(), connection.execute_wrapper(note):
            return client.post(f"/api/v2/jobs/{job.pk}/result/", {"results": [item]}, format="json").status_code

    def handle(index: int) -> None:
        with impatient(), connection.execute_wrapper(note):
            handle_message(messages[index])

    with pytest.MonkeyPatch.context() as patch:
        messages = keep_result_messages(patch)
        with held_row(job):
            assert at_once(post, 20) == [200] * 20
            at_once(handle, 20)
    assert written == []
    assert JobImage.objects.unsettled().count() == 1
    handle_result(job.pk, result=world.found(captures[20]))
    assert Job.objects.get(pk=job.pk).status == JobStatus.SUCCESS


@contextmanager
def impatient() -> Iterator[None]:
    """Let no statement of this connection wait for a lock, if the database supports that."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
    yield


@contextmanager
def held_row(job: Job) -> Iterator[None]:
    """Hold an uncommitted update of the job's row, as a slow writer would; SQLite has no row locks."""
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic():
        Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now())
        yield


def interrupted_after(seconds: float):
    """Raise the soft time limit in this thread from a signal, as a worker's child does."""

    def raise_limit(*_: Any) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, raise_limit)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return before


@pytest.mark.parametrize("inside_a_transaction", [True, False])
def test_incident_35_soft_limit_in_a_query_rolls_back_and_reconnects(
    world: World, monkeypatch, inside_a_transaction: bool
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("interrupts a query on PostgreSQL")
    [capture] = world.captures(1)
    job = world.running([capture])
    row = stored_results.store(job, "reply", world.found(capture, boxes=3))
    limited: list[Any] = []

    def slow(*_: Any, **__: Any) -> None:
        if limited:
            return
        with connection.cursor() as cursor:
            limited.append(interrupted_after(0.3))
            cursor.execute("SELECT pg_sleep(120)")

    settle = saving.settle_processed

    def slow_then_settle(*args: Any, **kwargs: Any) -> bool:
        slow()
        return settle(*args, **kwargs)

    if inside_a_transaction:
        monkeypatch.setattr("ami.jobs.services.job_results.settle_processed", slow_then_settle)
    else:
        monkeypatch.setattr("ami.jobs.services.ingest.job_completion.complete_if_settled", slow)
    seen: list[tuple[int, str]] = []
    monkeypatch.setattr(
        "ami.jobs.services.db_interrupt.reset_connection",
        lambda reset=db_interrupt.reset_connection: (
            reset(),
            seen.append((Detection.objects.count(), JobImage.objects.get(job=job).state)),
        ),
    )
    message = {"job_id": job.pk, "result_key": row.key, "reply_subject": "reply"}
    started = time.monotonic()
    try:
        process_nats_pipeline_result.apply(kwargs=message, throw=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, limited[0])
    assert time.monotonic() - started < 60
    assert seen == [(0, "published") if inside_a_transaction else (3, "processed")]
    row.refresh_from_db()
    assert (row.handled_at is not None, row.error) == (True, "")
    assert Detection.objects.count() == Classification.objects.count() == Occurrence.objects.count() == 3


def test_incident_35_soft_limit_in_a_jobs_query_ends_only_the_slice(world: World, monkeypatch) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("interrupts a query on PostgreSQL")
    job = world.job([])
    limited: list[Any] = []

    def slow(job: Job, work: Any) -> bool:
        with connection.cursor() as cursor:
            limited.append(interrupted_after(0.3))
            cursor.execute("SELECT pg_sleep(120)")
        return True

    monkeypatch.setattr("ami.jobs.services.ml_job.collect", slow)
    try:
        assert job_slice.run_slice(job, "me", Now()) is job_slice.Next.SUCCESSOR
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, limited[0])
    job.refresh_from_db()
    assert (job.status, job.holder) == (JobStatus.STARTED, "")
    assert job.log_entries.filter(message__contains="soft time limit").exists()


def test_incident_22_requests_of_a_client_at_once_extend_each_claim_once(world: World) -> None:
    job = world.running(world.captures(20))
    lease = timezone.now() + timedelta(seconds=100)
    JobImage.objects.update(state=ImageState.CLAIMED, claimed_by="a client", lease_expires_at=lease)
    due = claim_extension.due_claims(job, "a client")
    assert sum(at_once(lambda _: claim_extension.extend(job, due))) == 20
    assert set(JobImage.objects.values_list("extensions", flat=True)) == {1}
