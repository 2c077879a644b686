"""Every task of the product, published by its name and with who asked, reaches the worker of its queue."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

from ami.celery.app import AntennaCelery
from ami.celery.staged_calls import dispatching
from ami.topology.router import ORIGIN_HEADER
from ami.topology.table import HOUSEKEEPING, INGEST, INTERACTIVE
from ami.topology.topology import load
from ami.topology.workload import ORIGINS
from tests.support.celery_suite.vendor import CeleryTestSetup
from tests.support.celery_suite.workers import Workers, asked
from tests.support.containers.engine import until

DISCARDED = re.compile(r"Discarding revoked task: \S+\[(\S+)\]")

#: Tasks that find nothing to do in an empty database: name, arguments, origin, queue.
HARMLESS = [
    ("ami.jobs.tasks.jobs_health_check", [], "beat", HOUSEKEEPING),
    ("ami.jobs.tasks.jobs_health_check", [], "person", INTERACTIVE),
    ("ami.ml.tasks.create_detection_images", [[]], "task", INGEST),
    ("ami.ml.tasks.create_detection_images", [[]], "person", INTERACTIVE),
    ("ami.ml.tasks.reprocess_captures", [[]], "person", INTERACTIVE),
    ("ami.exports.tasks.run_scheduled_exports", [], "beat", HOUSEKEEPING),
]


def test_every_task_reaches_the_queue_that_the_topology_says_whoever_asks(
    celery_setup: CeleryTestSetup, workers: Workers
):
    topology, expected = load({}), {}
    for name in tasks_of_the_product(celery_setup.app, workers):
        for origin in ORIGINS:
            expected[publish_expired(celery_setup.app, name, origin)] = topology.place(name, origin).queue
    assert set(expected.values()) == {INGEST, HOUSEKEEPING, INTERACTIVE}

    until(lambda: len(discarded(workers)) >= len(expected), 60, "every task arrived")
    arrived = discarded(workers)
    assert {task: arrived[task] for task in expected} == {task: [queue] for task, queue in expected.items()}


def tasks_of_the_product(app: AntennaCelery, workers: Workers) -> set[str]:
    """Return the names that every worker knows; one that knew fewer would drop what it is sent."""
    known = [set(names) for names in asked(app, workers).registered().values()]
    assert len(known) == 4
    assert all(names == known[0] for names in known)
    return {name for name in known[0] if name.startswith("ami.")} | {"celery.backend_cleanup"}


def publish_expired(app: AntennaCelery, name: str, origin: str) -> str:
    """Publish a task that its worker receives and does not run; return its id. One with a policy is no row here."""
    with dispatching():
        return str(app.send_task(name, headers={ORIGIN_HEADER: origin}, expires=-1).id)


def discarded(workers: Workers) -> dict[str, list[str]]:
    """Return the queues whose worker discarded a task, by the task's id."""
    found: dict[str, list[str]] = {}
    for queue, worker in workers.items():
        for task in DISCARDED.findall(worker.logs()):
            found.setdefault(task, []).append(queue)
    return found


@pytest.mark.parametrize(("name", "args", "origin", "queue"), HARMLESS)
def test_a_task_of_the_product_succeeds_on_the_worker_of_its_queue(
    celery_setup: CeleryTestSetup, workers: Workers, name: str, args: Iterable[Any], origin: str, queue: str
):
    with dispatching():  # A message, which its worker makes a call of if the task has a policy.
        task_id = celery_setup.app.send_task(name, args, headers={ORIGIN_HEADER: origin}).id
    until(lambda: f"Task {name}[{task_id}] succeeded" in workers[queue].logs(), 60, f"{name} succeeds")
