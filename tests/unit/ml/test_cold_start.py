"""Services that start slowly: beat's sweep, a person's check, and the first batch of a pushed job."""

import socket
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import JobStatus
from ami.jobs.services import cold_wait, job_slice, operations
from ami.ml.api import patience
from ami.ml.models import ProcessingService
from ami.ml.services import probes, service_client
from tests.support.product.http_services import push_service, served
from tests.support.product.job_setup import Now, World

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of hundredths of a second; a cold start may take 2 s, a probe of beat's 0.3 s."""
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)
    monkeypatch.setattr(probes, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(probes, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(service_client, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(service_client, "LONGEST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(cold_wait, "COLD_START_SECONDS", 2.0)


class Starting:
    """Answers of a service that is not ready for its first ``failures`` requests."""

    def __init__(self, failures: int, status: int = 503) -> None:
        self.failures = failures
        self.status = status
        self.asked: list[str] = []

    def __call__(self, path: str, body: object) -> tuple[int, object]:
        self.asked.append(path)
        if len(self.asked) <= self.failures:
            return self.status, {"detail": "loading models"}
        return 200, {"status": ["constant"], "name": "push", "pipelines": [], "algorithms": []}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def failing(seconds: float) -> dict[str, object]:
    return {"last_seen_live": False, "failing_since": timezone.now() - timedelta(seconds=seconds)}


@pytest.mark.parametrize(
    ("live", "failing_seconds", "state"),
    [
        (None, None, "unknown"),
        (True, None, "online"),
        (False, None, "offline"),
        (False, 1, "starting"),
        (False, 85, "starting"),
        (False, 91, "offline"),
    ],
)
def test_state_of_a_service(live: bool | None, failing_seconds: float | None, state: str) -> None:
    fields = failing(failing_seconds) if failing_seconds else {}
    assert ProcessingService(name="x", **{"last_seen_live": live, **fields}).state == state


def test_sweep_keeps_the_first_failure_until_an_answer(world: World) -> None:
    answers = Starting(2)
    with served(answers) as url:
        service = push_service(world, url)
        seen = []
        for _ in range(3):
            probes.probe_all([service])
            service.refresh_from_db()
            seen.append((service.state, service.failing_since))
    assert [state for state, _ in seen] == ["starting", "starting", "online"]
    assert seen[0][1] == seen[1][1] is not None
    assert seen[2][1] is None


@pytest.mark.parametrize(
    ("status", "state"), [(500, "starting"), (429, "starting"), (404, "offline"), (401, "offline")]
)
def test_answers_that_a_start_does_not_change(world: World, status: int, state: str) -> None:
    with served(Starting(1, status)) as url:
        service = push_service(world, url)
        probes.probe_all([service])
    service.refresh_from_db()
    assert service.state == state


def test_person_waits_until_the_service_is_ready(world: World) -> None:
    answers = Starting(4)
    with served(answers) as url:
        status = probes.check_now(push_service(world, url), None, 2.0)
    assert (status.server_live, status.state, status.pipelines_online) == (True, "online", ["constant"])
    assert answers.asked == ["/readyz"] * 5 + ["/info"]


def test_person_waits_for_one_slow_answer_longer_than_beat_does(world: World) -> None:
    def slow(path: str, body: object) -> tuple[int, object]:
        threading.Event().wait(0.6)
        return 200, {"status": []}

    with served(slow) as url:
        service = push_service(world, url)
        assert not probes.probe_all([service])[service.pk].live
        assert probes.check_now(service, None, 2.0).server_live


def test_service_that_never_answers_is_starting_after_the_wait(world: World) -> None:
    with served(Starting(10**6)) as url:
        status = probes.check_now(push_service(world, url), None, 0.1)
    assert (status.server_live, status.state) == (False, "starting")
    assert status.error


def test_refused_connection_is_not_waited_for_as_long(world: World) -> None:
    service = push_service(world, f"http://127.0.0.1:{free_port()}")
    status = probes.check_now(service, None, 60.0)
    assert (status.server_live, status.state) == (False, "starting")
    assert status.latency < 5


def test_one_request_per_web_process_waits_for_a_cold_start() -> None:
    with patience.seconds() as first, patience.seconds() as second:
        assert (first, second) == (90.0, 8.0)
    with patience.seconds() as third:
        assert third == 90.0


def test_api_and_list_show_the_state(world: World) -> None:
    ProcessingService.objects.filter(pk=push_service(world, "http://x.example").pk).update(**failing(1))
    client = APIClient()
    client.force_authenticate(world.user)
    [row] = client.get("/api/v2/ml/processing_services/").json()["results"]
    assert row["state"] == "starting"
    assert row["failing_since"]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_first_batch_waits_for_the_service_and_renews_the_lease(
    world: World, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    captures = world.captures(2)
    by_id = {str(capture.pk): capture for capture in captures}
    requests: list[str] = []
    states: list[str] = []
    save = Job.save_progress

    def renew(self: Job, **values: Any) -> None:
        states.append(ProcessingService.objects.get().state)
        save(self, **values)

    monkeypatch.setattr(Job, "save_progress", renew)

    def answer(path: str, body: dict) -> tuple[int, object]:
        requests.append(path)
        if len(requests) <= 8:
            return status, {}
        return 200, world.found(*(by_id[each["id"]] for each in body["source_images"]))

    with served(answer) as url:
        push_service(world, url)
        job = world.job(captures, mode="sync_api")
        job_slice.run_slice(job, "me", Now())
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS
    assert len(requests) == 8 + 2
    assert states.count("starting") == 8
    service = ProcessingService.objects.get()
    assert (service.state, service.failing_since) == ("online", None)


def test_service_whose_port_opens_later_gets_the_first_batch(world: World) -> None:
    captures = world.captures(1)
    port = free_port()
    push_service(world, f"http://127.0.0.1:{port}")
    job = world.job(captures, mode="sync_api")
    waits = service_client._waits
    opened = []

    def opening(*arguments: object) -> object:
        for number, wait in enumerate(waits(*arguments)):
            if number == 3:
                opened.append(served(lambda path, body: (200, world.found(*captures)), port))
                opened[0].__enter__()
            yield wait

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_client, "_waits", opening)
        job_slice.run_slice(job, "me", Now())
    opened[0].__exit__(None, None, None)
    assert JobImage.objects.get().state == "processed"


def test_later_batch_is_tried_three_times(world: World) -> None:
    captures = world.captures(2)
    requests: list[str] = []

    def answer(path: str, body: dict) -> tuple[int, object]:
        requests.append(path)
        return (200, world.found(captures[0])) if len(requests) == 1 else (503, {})

    with served(answer) as url:
        push_service(world, url)
        job = world.job(captures, mode="sync_api", shuffle=False)
        job_slice.run_slice(job, "me", Now())
    assert len(requests) == 1 + 3
    assert sorted(JobImage.objects.values_list("state", flat=True)) == ["failed", "processed"]
    assert ProcessingService.objects.get().state == "starting"


def test_first_batch_of_a_dead_service_fails_after_the_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_wait, "COLD_START_SECONDS", 0.2)
    with served(Starting(10**6)) as url:
        push_service(world, url)
        job = world.job(world.captures(1), mode="sync_api")
        job_slice.run_slice(job, "me", Now())
    job.refresh_from_db()
    assert job.status == JobStatus.FAILURE
    assert "status 503" in JobImage.objects.get().error


def test_wait_goes_on_in_the_next_slice_and_ends_in_all(world: World) -> None:
    answers = Starting(10**6)
    with served(answers) as url:
        push_service(world, url)
        job = world.job(world.captures(1), mode="sync_api")
        assert job_slice.run_slice(job, "me", Now(3)) is job_slice.Next.SUCCESSOR
        until = job.cursor["cold_until"]
        assert JobImage.objects.unsettled().exists()
        assert job_slice.run_slice(job, "me", Now(3)) is job_slice.Next.SUCCESSOR
        assert job.cursor["cold_until"] == until
        Job.objects.filter(pk=job.pk).update(cursor={**job.cursor, "cold_until": 0})
        before = len(answers.asked)
        job_slice.run_slice(job, "me", Now())
    assert len(answers.asked) - before == service_client.TRIES
    assert "status 503" in JobImage.objects.get().error


def test_cancelled_job_does_not_wait_for_its_service(world: World) -> None:
    requests: list[str] = []

    def answer(path: str, body: dict) -> tuple[int, object]:
        requests.append(path)
        return 503, {}

    job = world.job(world.captures(1), mode="sync_api")
    save = Job.save_progress

    def cancel(self: Job, **values: Any) -> None:
        if len(requests) == 3:
            operations.cancel(job)
        save(self, **values)

    with served(answer) as url, pytest.MonkeyPatch.context() as patch:
        push_service(world, url)
        patch.setattr(Job, "save_progress", cancel)
        job_slice.run_slice(job, "me", Now())
    job.refresh_from_db()
    assert job.status == JobStatus.REVOKED
    assert len(requests) == 3
