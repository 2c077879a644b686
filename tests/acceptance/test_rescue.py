"""A worker that is frozen, killed or cut off: its task starts again soon, and a healthy slow one is left alone."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ami.queues.models import Worker
from tests.support.brokers import BROKERS, FOLDER, RABBITMQ
from tests.support.place import Place, Process, new_place, until
from tests.support.soak import soak

T = "tests.support.worker_tasks.basic"
QUEUE, SLOW = "antenna-housekeeping", "antenna-interactive"
#: A second start after this time is too late.
SECONDS = 30

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("rescue", request.param) as made:
        made.use_test_database()
        made.queues("declare")
        yield made


def row(queue: str) -> Any:
    return next((row for row in Worker.objects.order_by("-seen_at") if queue in row.queues), None)


def runs(queue: str, task: str) -> bool:
    """Whether the worker of a queue shows the task as running."""
    found = row(queue)
    return found is not None and any(each["id"] == task for each in found.running)


def freeze(process: Process) -> None:
    for pid in (process.popen.pid, *(pid for pid, _ in row(QUEUE).children)):
        os.kill(pid, signal.SIGSTOP)


def freeze_parent(process: Process) -> None:
    os.kill(process.popen.pid, signal.SIGSTOP)


def kill(process: Process) -> None:
    os.kill(process.popen.pid, signal.SIGKILL)


SHORT = [(RABBITMQ, freeze), (FOLDER, freeze_parent), (FOLDER, kill)]
EVERY = [(broker, end) for broker in BROKERS for end in (freeze, freeze_parent, kill)]


@pytest.mark.parametrize(("place", "end"), soak(SHORT, EVERY), indirect=["place"])
def test_task_of_a_dead_worker_starts_again_and_a_slow_one_does_not(place: Place, end: Any):
    """Housekeeping's own worker dies; the other worker holds the sweep, and its slow task is a healthy one."""
    slow_worker, dying = place.workers(SLOW, QUEUE)
    slow, task = place.send(f"{T}.hold", 75, queue=SLOW), place.send(f"{T}.hold", 45, queue=QUEUE)
    until(lambda: runs(QUEUE, task) and runs(SLOW, slow), seconds=45, what="both workers show their task")
    pid, before = row(QUEUE).pid, row(QUEUE).connection_name
    end(dying)
    rescuer = place.worker(QUEUE, "--hostname", "rescuer@%h")
    until(lambda: task in rescuer.text, seconds=SECONDS, what="the task started again")
    if end is not kill:
        until(lambda: "DEAD WORKER" in slow_worker.text + rescuer.text, seconds=5, what="it is said")
        until(lambda: Worker.objects.filter(connection_name=before, verdict="dead").exists(), what="it is flagged")
        assert place.queues("workers", "--dead", check=False).code == 1
        until(lambda: dying.popen.poll() is not None, seconds=10, what="its process has ended")
    assert pid == dying.popen.pid
    assert len(place.ran("hold", id=slow)) == 0
    assert slow_worker.text.count(f"{slow}] received") == 1, "the slow task was received once"
