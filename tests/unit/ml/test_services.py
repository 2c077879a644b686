"""Processing services as real HTTP servers: registration, heartbeats, probes, pushed batches."""

import threading
import time
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.models import JobImage
from ami.jobs.models.states import JobStatus
from ami.jobs.services import job_slice
from ami.ml.models import Pipeline, ProcessingService
from ami.ml.services import heartbeats
from ami.ml.services import probes as probing
from tests.support.product.http_services import push_service, served
from tests.support.product.job_setup import Now, World


@pytest.fixture
def client(world: World) -> APIClient:
    client = APIClient()
    client.force_authenticate(world.user)
    return client


CONFIG = {
    "name": "Constant",
    "slug": "constant",
    "version": 1,
    "algorithms": [
        {"name": "D", "key": "d", "task_type": "detection"},
        {"name": "C", "key": "c", "task_type": "classification", "category_map": {"data": [], "labels": ["Moth"]}},
    ],
    "stages": [],
}


def test_a_worker_registers_and_repeating_it_creates_nothing(world: World, client: APIClient) -> None:
    body = {"processing_service_name": "worker", "pipelines": [CONFIG]}
    path = f"/api/v2/projects/{world.project.pk}/pipelines/"
    first = client.post(path, body, format="json")
    assert first.status_code == 201, first.content
    assert set(first.json()) >= {"timestamp", "success", "pipelines", "pipelines_created", "algorithms_created"}
    assert first.json()["pipelines_created"] == ["constant"]
    assert first.json()["algorithms_created"] == ["c", "d"]
    again = client.post(path, body, format="json").json()
    assert again["pipelines_created"] == again["algorithms_created"] == []
    service = ProcessingService.objects.get(name="worker")
    assert service.pulls
    assert service.last_seen_live
    assert Pipeline.objects.get(slug="constant").project_configs.get().project == world.project


def test_a_classifier_without_a_category_map_is_refused_with_its_field(world: World, client: APIClient) -> None:
    config = {**CONFIG, "algorithms": [{"name": "C", "key": "c", "task_type": "classification"}]}
    body = {"processing_service_name": "worker", "pipelines": [config]}
    answer = client.post(f"/api/v2/projects/{world.project.pk}/pipelines/", body, format="json")
    assert answer.status_code == 400
    assert set(answer.json()) == {"pipelines.0.algorithms.0.category_map"}
    assert not ProcessingService.objects.exists()


def test_incident_39_a_heartbeat_is_written_once_in_a_while(world: World, django_assert_num_queries) -> None:
    service = push_service(world, "")
    cache.clear()
    heartbeats._last.clear()
    assert heartbeats.record_heartbeat(project_ids=[world.project.pk], slugs=[world.pipeline.slug])
    with django_assert_num_queries(0):
        assert not heartbeats.record_heartbeat(project_ids=[world.project.pk], slugs=[world.pipeline.slug])
    service.refresh_from_db()
    assert service.last_seen_live


def test_hazard_7_heartbeats_work_while_the_cache_is_down(settings, world: World, monkeypatch) -> None:
    service = push_service(world, "")
    heartbeats._last.clear()
    monkeypatch.setattr(heartbeats.cache, "add", lambda *args: False)
    monkeypatch.setattr(heartbeats.cache, "get", lambda *args: None)
    assert heartbeats.record_heartbeat(project_ids=[world.project.pk], slugs=[world.pipeline.slug])
    service.refresh_from_db()
    assert service.last_seen


def test_incident_9_many_dead_services_take_no_longer_than_one(world: World, monkeypatch) -> None:
    monkeypatch.setattr(probing, "PROBE_SECONDS", 1.0)
    release = threading.Event()

    def silent(path: str, body: object) -> tuple[int, object]:
        release.wait(20)
        return 503, {}

    with served(silent) as dead, served(lambda path, body: (200, {"status": ["a"]})) as alive:
        services = [push_service(world, dead, f"dead {n}") for n in range(6)]
        live = push_service(world, alive, "alive")
        started = time.monotonic()
        probes = probing.probe_all([*services, live])
        took = time.monotonic() - started
        release.set()
    assert took < 5
    assert [pk for pk, probe in probes.items() if probe.live] == [live.pk]
    live.refresh_from_db()
    assert live.last_seen_live
    assert not ProcessingService.objects.filter(name__startswith="dead", last_seen_live=True).exists()


def test_pull_service_silent_for_a_minute_is_offline(world: World) -> None:
    old = timezone.now() - timedelta(seconds=61)
    silent = ProcessingService.objects.create(name="silent", last_seen=old, last_seen_live=True)
    seen = ProcessingService.objects.create(name="seen", last_seen=timezone.now(), last_seen_live=True)
    assert probing.mark_unseen_offline() == 1
    silent.refresh_from_db()
    seen.refresh_from_db()
    assert (silent.last_seen_live, seen.last_seen_live) == (False, True)


def test_a_pushed_job_saves_each_batch_and_a_refused_batch_fails_alone(world: World, monkeypatch) -> None:
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)
    captures = world.captures(5)
    by_id = {str(capture.pk): capture for capture in captures}
    seen: list[dict] = []

    def answer(path: str, body: dict) -> tuple[int, object]:
        seen.append(body)
        ids = [image["id"] for image in body["source_images"]]
        if str(captures[0].pk) in ids:
            return 422, {"detail": "bad picture"}
        return 200, world.found(*(by_id[pk] for pk in ids))

    world.pipeline.default_config = {"request_source_image_batch_size": 2, "threshold": 1}
    world.pipeline.save()
    world.pipeline.project_configs.update(config={"threshold": 2})
    with served(answer) as url:
        push_service(world, url)
        job = world.job(captures, mode="sync_api", shuffle=False)
        job_slice.run_slice(job, "me", Now())
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS
    assert [len(body["source_images"]) for body in seen] == [2, 2, 1]
    assert seen[0]["config"] == {"threshold": 2}
    assert sorted(JobImage.objects.values_list("state", flat=True)) == ["failed"] * 2 + ["processed"] * 3


def test_hazard_3_a_service_that_hangs_fails_its_batch_in_time(world: World, settings) -> None:
    settings.ANTENNA_PROCESS_SECONDS = 0.3
    release = threading.Event()

    def hang(path: str, body: object) -> tuple[int, object]:
        release.wait(20)
        return 200, {}

    with served(hang) as url:
        push_service(world, url)
        job = world.job(world.captures(1), mode="sync_api")
        job_slice.run_slice(job, "me", Now())
        release.set()
    job.refresh_from_db()
    assert job.status == JobStatus.FAILURE
    assert "did not answer" in JobImage.objects.get().error


def test_hazard_10_a_projects_config_leaves_the_default_alone(world: World) -> None:
    world.pipeline.default_config = {"nested": {"a": 1}}
    world.pipeline.project_configs.update(config={"b": 2})
    config = world.pipeline.config_for(world.project.pk)
    config["nested"]["a"] = 99
    assert world.pipeline.config_for(world.project.pk) == {"nested": {"a": 1}, "b": 2}
    assert world.pipeline.config_for(10**6) == {"nested": {"a": 1}}


@pytest.mark.django_db
@pytest.mark.parametrize("body", [b"[" * 200_000, b"x" * 2 * 1024**2], ids=["nested", "large"])
def test_hostile_service_is_offline_and_the_others_are_probed(body, monkeypatch) -> None:
    import httpx

    bad = ProcessingService.objects.create(name="bad", endpoint_url="http://bad.example")
    good = ProcessingService.objects.create(name="good", endpoint_url="http://good.example")

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body if request.url.host == "bad.example" else b"[]")

    def client(**options) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(answer), **options)

    monkeypatch.setattr("ami.main.services.outbound.async_client", client)
    probes = probing.probe_all([bad, good])
    assert (probes[bad.pk].live, probes[good.pk].live) == (False, True)
