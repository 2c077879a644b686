"""A pull worker that holds many images of other jobs is handed none (incident 38). NATS is away: 503 would hand out."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.api.pull_client import client_of
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState
from ami.jobs.services import held_images
from tests.support.product.job_setup import World

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
HANDS_OUT, NOTHING = 503, 200
ME, OTHER = {"hostname": "camera-1"}, {"hostname": "camera-2"}


@pytest.fixture
def jobs(world: World, settings: Any) -> list[Job]:
    settings.ANTENNA_PULL_TURN_SECONDS, settings.ANTENNA_PULL_MOST_HELD = 0, 3
    return [world.running(world.captures(4)) for _ in range(2)]


def key(world: World, info: dict[str, Any]) -> str:
    class Asked:
        auth, user = None, world.user

    return client_of(Asked(), info)  # type: ignore[arg-type]


def fetch(client: APIClient, job: Job, info: dict[str, Any]) -> int:
    body = {"batch_size": 2, "client_info": info}
    answer = client.post(f"/api/v2/jobs/{job.pk}/tasks/", body, format="json")
    if answer.status_code == NOTHING:
        assert answer.json() == {"tasks": []}
    return answer.status_code


def hold(job: Job, client: str, count: int, seconds: float = 60.0) -> None:
    rows = list(job.images.order_by("pk")[:count])
    for row in rows:
        row.state, row.claimed_by, row.reply_subject = ImageState.CLAIMED, client, f"reply.{row.pk}"
        row.lease_expires_at = timezone.now() + timedelta(seconds=seconds)
    JobImage.objects.bulk_update(rows, ["state", "claimed_by", "reply_subject", "lease_expires_at"])


def post(job: Job, count: int) -> None:
    """Store results as a post does; none is handled yet."""
    for row in job.images.filter(state=ImageState.CLAIMED).order_by("pk")[:count]:
        StoredResult.objects.create(job=job, key=f"result {row.pk}", size_bytes=1, reply_subject=row.reply_subject)


def test_incident_38_a_worker_that_holds_images_of_another_job_posts_them_first(
    client: APIClient, world: World, jobs: list[Job]
):
    first, second = jobs
    hold(first, key(world, ME), 3)
    assert fetch(client, second, ME) == NOTHING
    assert fetch(client, second, OTHER) == HANDS_OUT
    assert fetch(client, first, ME) == HANDS_OUT, "its own job goes on"
    post(first, 1)
    assert held_images.allowance(second, key(world, ME), 2) == 1
    assert fetch(client, second, ME) == HANDS_OUT


@pytest.mark.parametrize(("held", "allowed"), [(0, 2), (1, 2), (2, 1), (3, 0), (4, 0)])
def test_it_gets_what_is_left(world: World, jobs: list[Job], held: int, allowed: int):
    hold(jobs[0], key(world, ME), held)
    with CaptureQueriesContext(connection) as seen:
        assert held_images.allowance(jobs[1], key(world, ME), 2) == allowed
    assert len(seen) == (1 if held < 2 else 2)


def test_leases_that_have_ended_do_not_count(world: World, jobs: list[Job]):
    hold(jobs[0], key(world, ME), 4, seconds=-1)
    assert held_images.allowance(jobs[1], key(world, ME), 2) == 2


def test_workers_without_a_name_have_no_limit(client: APIClient, world: World, jobs: list[Job]):
    hold(jobs[0], key(world, {}), 4)
    assert fetch(client, jobs[1], {}) == HANDS_OUT


def test_zero_is_no_limit(client: APIClient, world: World, jobs: list[Job], settings: Any):
    settings.ANTENNA_PULL_MOST_HELD = 0
    hold(jobs[0], key(world, ME), 4)
    assert fetch(client, jobs[1], ME) == HANDS_OUT
