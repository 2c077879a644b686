"""A worker follows what operators want: before its first task, at once, over restarts, and against drift."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db.models.functions import Now

from ami.queues.models import DesiredState, TaskRun, Worker
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.place import BROKERS, Place, new_place, until
from tests.support.soak import soak

T, P = "tests.support.worker_tasks.basic", "tests.support.worker_tasks.progress"
QUEUE = "antenna-interactive"

pytestmark = pytest.mark.django_db(transaction=True)


def wish(kind: str, name: str, aspect: str, value: int, **fields: Any) -> None:
    """Write an operator's wish, and wake no worker."""
    defaults = {"value": value, "by": "a test", "since": Now(), **fields}
    DesiredState.objects.update_or_create(kind=kind, name=name, aspect=aspect, defaults=defaults)


@pytest.fixture(params=ON_FOLDER)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("desired-state", request.param) as made:
        made.use_test_database()
        made.environment["ANTENNA_EXTRA_TASKS"] = f"{T},{P},tests.support.worker_tasks.drift"
        made.queues("declare")
        yield made


def row() -> Worker:
    """The row of the only worker."""
    return Worker.objects.get()


def wake(place: Place) -> None:
    place.app.control.broadcast("antenna_wishes_changed")


def repaired(place: Place, how: str) -> Callable[[], Any]:
    """Make the worker drift; return what is true once its row counts a repair more."""
    before = sum(row().repairs.values())
    place.app.control.broadcast("drift", arguments={"how": how}, reply=True, timeout=20, limit=1)
    return lambda: sum(row().repairs.values()) > before


def test_paused_queue_is_closed_before_the_first_task_and_reopened(place: Place):
    wish("queue", QUEUE, "paused", 1, why="night shift")
    task = place.send(f"{T}.succeed", queue=QUEUE)
    worker = place.celery(*_line(place))
    until(lambda: Worker.objects.filter(closed_queues=[QUEUE]).exists(), what="the worker confirms")
    assert place.depth(QUEUE) == 1
    assert "paused by a test: night shift" in worker.text

    assert worker.stop() == 0, worker.text
    assert not Worker.objects.exists(), "a worker that ends in order has no row"
    worker = place.celery(*_line(place))
    until(lambda: Worker.objects.filter(closed_queues=[QUEUE]).exists(), what="the restarted worker confirms")
    assert not place.ran("succeed")

    wish("queue", QUEUE, "paused", 0)
    wake(place)
    until(lambda: place.ran("succeed", id=task), seconds=5, what="the task ran after the pause")
    until(lambda: row().closed_queues == [], what="the row shows it")


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_drift_is_undone_and_counted(place: Place):
    place.worker(QUEUE)
    until(Worker.objects.exists, what="the worker has a row")
    for how in ("cancel_consumer", "cancel on the channel", "foreign queue", "shrink", "time limit"):
        until(repaired(place, how), seconds=8, what=f"{how} is undone")
        task = place.send(f"{T}.succeed", queue=QUEUE)
        until(lambda task=task: place.ran("succeed", id=task), seconds=10, what=f"a task ran after {how}")
    until(lambda: row().concurrency == 2, what="the pool has its size again")
    assert "drift" in found(place)
    stats = place.app.control.inspect(timeout=20, limit=1).stats()
    (told,) = [each["desired_state"] for each in stats.values()]
    assert sum(told["repairs"].values()) >= 5

    wish("queue", QUEUE, "paused", 1)
    wake(place)
    until(lambda: row().closed_queues == [QUEUE], what="the queue is closed")
    until(repaired(place, "open the closed"), seconds=8, what="the pause holds")
    until(lambda: row().closed_queues == [QUEUE], what="the queue is closed again")


@pytest.mark.parametrize("place", BROKERS, indirect=True)
def test_queue_that_is_deleted_and_declared_anew_is_consumed_again(place: Place):
    place.worker(QUEUE)
    until(Worker.objects.exists, what="the worker has a row")
    with place.app.connection_for_write() as connection, connection.channel() as channel:
        channel.queue_delete(QUEUE)
    place.queues("declare")
    task = place.send(f"{T}.succeed", queue=QUEUE)
    until(lambda: place.ran("succeed", id=task), seconds=soak(12, 5), what="a task ran")


@pytest.mark.parametrize("place", BROKERS[1:], indirect=True)
def test_message_that_a_worker_holds_and_does_not_run_is_found(place: Place):
    place.worker(QUEUE)
    until(Worker.objects.exists, what="the worker has a row")
    place.send(f"{T}.hold", 25, queue=QUEUE)
    until(lambda: row().running, seconds=20, what="the row shows the task")
    assert "unaccounted" not in found(place)
    place.app.control.broadcast("forget_what_runs", reply=True, timeout=20, limit=1)
    until(lambda: row().unaccounted == 1, seconds=20, what="it is counted")
    assert "unaccounted" in found(place)


def found(place: Place) -> set[str]:
    """Return the names of the live check's findings."""
    return {row["name"] for row in place.queues("check", "--live", check=False).json}


def test_scaled_and_restarted_worker_replaces_its_children(place: Place):
    place.environment["ANTENNA_INTERACTIVE_CONTAINER_MEMORY_KIB"] = str(4 * 1024**2)
    place.worker(QUEUE)
    until(lambda: Worker.objects.exists() and len(row().children) == 2, what="the row shows both children")
    service = row().service
    wish("service", service, "concurrency", 3)
    wake(place)
    until(lambda: len(row().children) == 3, what="the pool has grown")
    wish("service", service, "concurrency", 1)
    wake(place)
    until(lambda: len(row().children) == 1, seconds=30, what="the pool has shrunk")
    before = row().children
    now = Worker.objects.values_list(Now(), flat=True)[0]
    wish("service", service, "restarted", int(now.timestamp()) + 1)
    until(lambda: len(row().children) == 1 and row().children != before, seconds=40, what="the child was replaced")
    task = place.send(f"{T}.succeed", queue=QUEUE)
    until(lambda: place.ran("succeed", id=task), seconds=10, what="a task ran in it")


@pytest.mark.parametrize("place", BROKERS, indirect=True)
def test_stopped_workers_task_returns_to_its_queue_flagged(place: Place):
    place.worker(QUEUE)
    until(Worker.objects.exists, what="the worker has a row")
    task = place.send(f"{T}.hold", 30, queue=QUEUE)
    until(lambda: any(each["id"] == task for each in row().running), seconds=20, what="the row shows the task")
    wish("node", row().node, "stopped", 1)
    wake(place)
    until(lambda: place.depth(QUEUE) == 1, seconds=30, what="the message is in its queue again")
    until(lambda: row().is_parked and not row().running, what="the worker runs nothing")
    with place.app.connection_for_read() as connection, connection.channel() as channel:
        message = channel.basic_get(QUEUE)
        flagged = channel.message_to_python(message).delivery_info["redelivered"]
        channel.basic_reject(message.delivery_tag, requeue=True)
    assert flagged


def test_task_that_stalls_is_buried_and_one_that_reports_is_not(place: Place):
    place.worker(QUEUE)
    reporting = place.send(f"{P}.report_steps", 16, queue=QUEUE)
    stalling = place.send(f"{P}.report_and_stall", queue=QUEUE)
    until(lambda: place.depth(f"{QUEUE}.dlq") == 1, seconds=25, what="the stalled task is buried")
    until(lambda: TaskRun.objects.filter(task_id=reporting, progress__startswith="step").exists(), what="its progress")
    until(lambda: place.ran("report_steps", id=reporting), seconds=25, what="the other one ended by itself")
    until(
        lambda: TaskRun.objects.filter(task_id=reporting, outcome="ended").exists(), seconds=15, what="its row says so"
    )
    assert not place.ran("report_and_stall", id=stalling, state="SUCCESS")


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_running_and_waiting_tasks_are_cancelled(place: Place):
    worker = place.worker(QUEUE)
    until(Worker.objects.exists, what="the worker has a row")
    running = [place.send(f"{T}.hold", 60, queue=QUEUE) for _ in range(2)]
    waiting = place.send(f"{T}.succeed", queue=QUEUE)
    until(lambda: len(row().running) == 2, seconds=20, what="the row shows the tasks")
    for task in (waiting, running[0]):
        place.queues("cancel", task, "--why", "a test")
    until(lambda: worker.text.count("cancelled by an operator") == 1, seconds=8, what="the running one is interrupted")
    until(lambda: f"{waiting}] received" in worker.text, seconds=8, what="the waiting one is received")
    until(lambda: "Discarding revoked task" in worker.text, seconds=8, what="it is dropped")
    assert not place.ran("succeed", id=waiting)
    assert any(each["id"] == running[1] for each in row().running)


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_resumed_queue_takes_its_key_back_after_a_rollback(place: Place):
    place.workers(QUEUE, "antenna")
    until(lambda: Worker.objects.count() == 2, what="both workers have a row")
    place.queues("pause", QUEUE)
    place.queues("rollback", "--yes")
    moved = place.send(f"{T}.succeed", queue=QUEUE)
    until(lambda: place.ran("succeed", id=moved), what="the fallback worker ran it")
    assert place.ran("succeed", id=moved)[0]["worker"].startswith("fallback@")
    place.queues("resume", QUEUE)
    sent = [place.send(f"{T}.succeed", queue=QUEUE) for _ in range(20)]
    until(lambda: {record["id"] for record in place.ran("succeed")} >= set(sent), what="every task ran")
    workers = {record["worker"].split("@")[0] for record in place.ran("succeed") if record["id"] in sent}
    assert workers == {"interactive"}


def _line(place: Place) -> list[str]:
    from ami.topology import command
    from ami.topology.topology import load
    from tests.support.place import _arguments

    return _arguments(command.worker(load(place.environment), QUEUE, ()))
