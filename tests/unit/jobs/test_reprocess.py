"""Reprocessing of captures on request of a user."""

import pytest
from rest_framework.test import APIClient

from ami.jobs.models import Job
from ami.jobs.services.reprocess_jobs import create_jobs
from tests.support.product.job_setup import World


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch) -> None:
    monkeypatch.setattr("ami.jobs.tasks.run_job.apply_async", lambda **_: None)


def test_a_redelivered_request_makes_no_second_job(world: World) -> None:
    ids = [capture.pk for capture in world.captures(3)]
    assert create_jobs(ids, None, once="task-1") == create_jobs(ids, None, once="task-1")
    assert Job.objects.get().params["source_image_ids"] == ids
    create_jobs(ids, None, once="task-2")
    assert Job.objects.count() == 2


def test_one_capture_is_reprocessed_on_the_interactive_queue(world: World) -> None:
    client = APIClient()
    client.force_authenticate(world.user)
    [capture] = world.captures(1)
    answer = client.post(f"/api/v2/captures/{capture.pk}/reprocess/", {}, format="json")
    assert answer.status_code == 202, answer.content
    assert answer.json()["queue"] == "antenna-interactive"
    assert Job.objects.get().source_image_single == capture
    wrong = client.post(f"/api/v2/captures/{capture.pk}/reprocess/", {"pipeline": 10**6}, format="json")
    assert set(wrong.json()) == {"pipeline"}
