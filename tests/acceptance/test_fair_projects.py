"""Projects are served in turn: one result, or one click, behind thousands of another project's is served at once."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from ami.admission import waiting_calls
from ami.jobs.models import JobImage
from ami.jobs.services import result_batches, stored_results
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.place import Place, new_place, until
from tests.support.product.job_setup import World, new_world
from tests.support.product.large_sets import plain_captures
from tests.support.soak import soak

RESULT, REGROUP = "ami.jobs.tasks.process_nats_pipeline_results", "ami.main.tasks.regroup_events"
INGEST, INTERACTIVE = "antenna-ingest", "antenna-interactive"
#: So many of one project wait, and the other one's starts well before they have ended.
MANY = soak(200, 6000)
#: A machine that runs other tests beside is slower.
AT_ONCE_SECONDS = soak(10.0, 5.0)


@pytest.fixture
def place(transactional_db, request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("fair", request.param) as made:
        made.use_test_database()
        made.environment |= {"ANTENNA_INGEST_CONCURRENCY": "2", "ANTENNA_INTERACTIVE_CONCURRENCY": "2"}
        made.queues("declare")
        yield made


def results(place: Place, world: World, count: int) -> list[str]:  # noqa: ARG001 - as `clicks`
    """Store results of one job, each of a capture of its own, with a call for each; return the calls' ids."""
    job, begin = world.running([]), timezone.now() - timedelta(days=300)
    captures = plain_captures(world, count, folder=f"{world.project.pk}/", begin=begin)
    JobImage.objects.bulk_create(JobImage(job=job, source_image=each, state="published") for each in captures)
    rows = [stored_results.store(job, "", world.found(each, boxes=0)) for each in captures]
    return [result_batches.publish([row])[0] for row in rows]


def clicks(place: Place, world: World, count: int) -> list[str]:
    """Ask for the sessions of so many stations of a project."""
    stations = range(10**6 * world.project.pk, 10**6 * world.project.pk + count)
    arguments = [{"deployment_id": station, "project_id": world.project.pk} for station in stations]
    return [place.send(REGROUP, origin="person", kwargs=each) for each in arguments]


@pytest.mark.parametrize(
    ("place", "publish", "task", "queue"),
    [
        *((broker, results, RESULT, INGEST) for broker in ON_FOLDER),
        *((broker, clicks, REGROUP, INTERACTIVE) for broker in ON_RABBITMQ),
    ],
    indirect=["place"],
)
def test_one_of_a_project_waits_behind_no_thousands_of_another(place: Place, publish, task: str, queue: str):
    large, small = new_world("large"), new_world("small")
    publish(place, large, MANY)
    place.workers(queue)
    until(lambda: len(place.ran(task)) > 10, what="the large project is served")
    [one] = publish(place, small, 1)
    [record] = until(lambda: place.ran(task, id=one), what="the small project is served")
    left = place.depth(queue) + waiting_calls.count(queue)
    assert left > MANY / 10, f"{left} of {MANY} left"
    assert record["waited_seconds"] < AT_ONCE_SECONDS
    until(lambda: len(place.ran(task)) == MANY + 1, 240, "all are served")
