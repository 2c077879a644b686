"""What real workers run is counted once, and shown by the snapshot, also when the sampler is killed."""

import importlib
from collections.abc import Iterator

import pytest

from ami.celery import task_times
from ami.queues import wishes
from ami.queues.models import EndedWorker, Lease, Worker
from ami.telemetry.models import Sample, TaskHistogram
from tests.support.place import FOLDER, ON_FOLDER, Place, new_place, until

B, QUICK = "tests.support.worker_tasks.basic", "tests.support.worker_tasks.quick_samples"
QUEUE = "antenna"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("samples", getattr(request, "param", FOLDER)) as made:
        made.use_test_database()
        made.environment["ANTENNA_EXTRA_TASKS"] = f"{B},{QUICK}"
        importlib.import_module(B)
        made.queues("declare")
        yield made


def counted() -> int:
    return sum(row.started for row in TaskHistogram.objects.filter(queue=QUEUE, task=f"{B}.succeed"))


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
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


def told() -> dict[str, list[float]]:
    """What the worker's row says of each task of the queue."""
    (row,) = Worker.objects.all()
    return {task.removeprefix(f"{B}."): counts for task, counts in ((row.totals or {}).get(QUEUE) or {}).items()}


def outcomes() -> dict[str, tuple[float, ...]]:
    return {task: tuple(counts[: task_times.WAIT_SECONDS]) for task, counts in told().items()}


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_waits_runs_and_outcomes_are_counted_on_every_pool(place: Place, pool: str):
    place.environment["ANTENNA_FALLBACK_POOL"] = pool
    # gevent is only itself in a process that it has changed before anything else.
    worker = place.worker(QUEUE, inside=["env"] if pool == "gevent" else ())
    for task, *arguments in (("succeed",), ("succeed",), ("fail",), ("retry_once",), ("hold", 0.3)):
        place.send(f"{B}.{task}", *arguments, queue=QUEUE)
    until(lambda: worker.text.count("] succeeded") == 4, 30, "all tasks have run")
    wishes.wake_workers()  # A worker that is woken reports itself.
    expected = {"succeed": (2, 2, 0, 0), "fail": (1, 0, 1, 0), "retry_once": (2, 1, 0, 1), "hold": (1, 1, 0, 0)}
    until(lambda: outcomes() == expected, 15, "the row says how tasks ended")
    for task, counts in told().items():
        started, succeeded, failed, retried = expected[task]
        assert sum(counts[task_times.WAITS : task_times.RUNS]) == started
        assert sum(counts[task_times.RUNS :]) == succeeded + failed + retried
    assert told()["hold"][task_times.RUN_SECONDS] >= 0.3
