"""What real workers run is counted once, and shown by the snapshot, also when the sampler is killed."""

import importlib
from collections.abc import Iterator

import pytest

from ami.queues.models import EndedWorker, Lease
from ami.telemetry.models import Sample, TaskHistogram
from tests.support.place import BROKERS, Place, new_place, until

B = "tests.support.worker_tasks.basic"
QUEUE = "antenna"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=BROKERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("samples", request.param) as made:
        made.use_test_database()
        made.environment["ANTENNA_EXTRA_TASKS"] = B
        importlib.import_module(B)
        made.queues("declare")
        yield made


def counted() -> int:
    return sum(row.started for row in TaskHistogram.objects.filter(queue=QUEUE, task=f"{B}.succeed"))


def test_every_task_is_counted_once_over_kill_and_orderly_end(place: Place):
    first = place.worker(QUEUE)
    for _ in range(20):
        place.send(f"{B}.succeed", queue=QUEUE)
    until(lambda: counted() == 20, 75, "the first worker's tasks are in the histograms")
    assert Sample.objects.filter(kind="queue", name=QUEUE, consumers=1).exists()
    assert Sample.objects.filter(kind="worker").exists()
    first.kill()
    Lease.objects.filter(name="sampler").delete()  # Another process takes over at once.
    second = place.worker(QUEUE)
    for _ in range(10):
        place.send(f"{B}.succeed", queue=QUEUE)
    until(lambda: second.text.count("] succeeded") >= 10, 30, "the second worker runs them")
    second.stop()
    # What it had counted at its end waits for the next process, or was counted by itself.
    waits = sum(tasks.get(f"{B}.succeed", [0])[0] for row in EndedWorker.objects.all() for tasks in row.totals.values())
    assert counted() + waits == 30
    (row,) = TaskHistogram.objects.filter(task=f"{B}.succeed")[:1]
    assert sum(row.waits) == row.started
    assert row.succeeded <= sum(row.runs)
