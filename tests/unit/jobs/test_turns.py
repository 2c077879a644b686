"""Running pull jobs are served in turn (incident 38). NATS is away here: 503 says that a job would hand out images."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState
from ami.jobs.services import turns
from ami.main.models import User
from ami.ml.models import Pipeline
from tests.support.product import factories
from tests.support.product.job_setup import World

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
HANDS_OUT, NOTHING = 503, 200


@pytest.fixture
def jobs(world: World) -> list[Job]:
    return [world.running(world.captures(1)) for _ in range(2)]


def fetch(client: APIClient, job: Job) -> int:
    answer = client.post(f"/api/v2/jobs/{job.pk}/tasks/", {"batch_size": 1}, format="json")
    if answer.status_code == NOTHING:
        assert answer.json() == {"tasks": []}
    return answer.status_code


def asked(client: APIClient, world: World, **query: Any) -> list[int]:
    query = {"ids_only": 1, "incomplete_only": 1, "pipeline__slug__in": world.pipeline.slug, **query}
    return [row["id"] for row in client.get("/api/v2/jobs/", query).json()["results"]]


def pass_time(seconds: float) -> None:
    Job.objects.exclude(served_at=None).update(served_at=F("served_at") - timedelta(seconds=seconds))


def test_worker_goes_from_one_job_to_the_other_when_a_turn_is_over(client: APIClient, world: World, jobs: list[Job]):
    served = []
    for _ in range(4):
        [key] = asked(client, world)
        served.append(key)
        job = Job.objects.get(pk=key)
        for _ in range(3):
            assert fetch(client, job) == HANDS_OUT, "within its turn"
        pass_time(61)
        assert fetch(client, job) == NOTHING
    assert served == served[:2] * 2
    assert len({*served}) == 2


def test_job_that_is_alone_is_not_interrupted(client: APIClient, world: World):
    job = world.running(world.captures(1))
    for _ in range(3):
        assert fetch(client, job) == HANDS_OUT
        pass_time(61)


def test_job_that_is_alone_costs_one_statement_within_its_turn(client: APIClient, world: World):
    job = world.running(world.captures(1))
    assert not turns.is_over(job, Job.objects.all())
    job = Job.objects.select_related("pipeline").get(pk=job.pk)
    with CaptureQueriesContext(connection) as seen:
        assert not turns.is_over(job, Job.objects.all())
    assert len(seen) == 1


@pytest.mark.parametrize("why", ["claimed", "another pipeline", "cannot be seen", "switched off"])
def test_other_job_that_this_worker_cannot_serve_ends_no_turn(
    client: APIClient, world: World, jobs: list[Job], settings: Any, why: str
):
    job, other = jobs
    assert fetch(client, job) == HANDS_OUT
    if why == "claimed":
        JobImage.objects.filter(job=other).update(state=ImageState.CLAIMED)
    elif why == "another pipeline":
        Job.objects.filter(pk=other.pk).update(pipeline=Pipeline.objects.create(name="Other", slug="other"))
    elif why == "cannot be seen":
        worker = User.objects.create_user("worker@example.org")
        world.project.members.add(worker)
        Job.objects.filter(pk=other.pk).update(project=factories.project())
        client.force_authenticate(worker)
    else:
        settings.ANTENNA_PULL_TURN_SECONDS = 0
    pass_time(61)
    assert fetch(client, job) == HANDS_OUT


def test_jobs_of_one_slug_in_two_projects_take_turns(client: APIClient, world: World, jobs: list[Job]):
    job, other = jobs
    twin = Pipeline.objects.create(project=factories.project(), name="Twin", slug=world.pipeline.slug)
    twin.project.members.add(world.user)
    Job.objects.filter(pk=other.pk).update(pipeline=twin, project=twin.project)
    assert fetch(client, job) == HANDS_OUT
    pass_time(61)
    assert fetch(client, job) == NOTHING


def test_of_two_workers_that_ask_at_once_each_gets_another_job(jobs: list[Job]):
    read = [(job.pk, job.served_at) for job in jobs]
    assert [turns.begin(read), turns.begin(read), turns.begin(read)] == [0, 1, 0]
    assert turns.begin([]) is None


def test_job_whose_last_turn_began_at_a_whole_second_is_served(jobs: list[Job]):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET served_at = '2026-01-01 00:00:00.000'")
    candidates = list(Job.objects.order_by("pk").values_list("pk", "served_at"))
    assert [turns.begin(candidates) for _ in range(2)] == [0, 1]


def test_several_jobs_come_in_order_and_only_the_first_begins_its_turn(
    client: APIClient, world: World, jobs: list[Job]
):
    first = asked(client, world, limit=5)
    assert sorted(first) == sorted(job.pk for job in jobs)
    assert asked(client, world, limit=5) == first[::-1]


def test_saving_a_job_keeps_its_turn(jobs: list[Job]):
    job = jobs[0]
    turns.is_over(job, Job.objects.all())
    job.save()
    assert Job.objects.get(pk=job.pk).served_at is not None
