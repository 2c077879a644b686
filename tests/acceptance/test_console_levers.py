"""Each lever of the console does to real workers what its form says."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.queues import wishes
from ami.queues.models import AuditEntry, Letter, Worker
from tests.support.browser import site
from tests.support.place import RABBITMQ, Place, Process, new_place, until

pytestmark = pytest.mark.django_db(transaction=True)

B = "tests.support.worker_tasks.basic"
SUCCEED, HOLD = f"{B}.succeed", f"{B}.hold"
QUEUE, OTHER = "antenna", "antenna-interactive"
SECONDS = 20


class Console:
    """A deployment with one worker, and an operator who pulls levers."""

    def __init__(self, place: Place, worker: Process) -> None:
        self.place, self.worker = place, worker
        self.client = Client()
        self.client.force_login(site.operator())
        self.node = self.row.node

    @property
    def row(self) -> Any:
        return Worker.objects.get()

    def pull(self, verb: str, target: str, **given: str) -> None:
        before = AuditEntry.objects.count()
        answer = self.client.post(reverse("console:lever", args=[verb, target]), {"why": "a test", **given})
        assert answer.status_code == 302, answer.content
        assert AuditEntry.objects.count() > before

    def send(self, task: str, *arguments: Any) -> str:
        return self.place.send(task, *arguments, queue=QUEUE)

    def ran(self, task_id: str) -> bool:
        """Whether a task was begun and has succeeded."""
        return f"{task_id}] succeeded" in self.worker.text

    def runs(self, task_id: str) -> bool:
        """Whether the worker's row lists the task, after a report of now."""
        wishes.wake_workers()
        return task_id in [task["id"] for task in self.row.running]

    def is_closed(self) -> bool:
        return QUEUE in self.row.closed_queues


@pytest.fixture
def console(settings: Any) -> Iterator[Console]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with new_place("console-levers", RABBITMQ) as place:
        place.use_test_database()
        place.environment |= {"ANTENNA_EXTRA_TASKS": B, "ANTENNA_COLLECT_LETTERS": "1"}
        place.environment["ANTENNA_FALLBACK_CONTAINER_MEMORY_KIB"] = str(4 * 1024**2)
        importlib.import_module(B)
        place.queues("declare")
        yield Console(place, place.worker(QUEUE))


def test_each_lever_does_what_it_says(console: Console):
    queue_levers(console)
    worker_levers(console)
    task_levers(console)


def queue_levers(console: Console) -> None:
    console.pull("pause", QUEUE)
    until(console.is_closed, SECONDS, "the worker has closed the queue")
    first, second, third = (console.send(SUCCEED) for _ in range(3))
    until(lambda: console.place.depth(QUEUE) == 3, SECONDS, "three messages wait")
    console.pull("move", QUEUE, to=OTHER, limit="1")
    assert (console.place.depth(QUEUE), console.place.depth(OTHER)) == (2, 1)
    console.pull("purge", OTHER, count="1")
    assert console.place.depth(OTHER) == 0
    console.pull("resume", QUEUE)
    until(lambda: console.ran(second) and console.ran(third), SECONDS, "what was left runs")
    assert not console.ran(first)


def worker_levers(console: Console) -> None:
    console.pull("park", console.node)
    until(console.is_closed, SECONDS, "the worker is parked")
    waits = console.send(SUCCEED)
    console.pull("scale", console.node, count="2")
    until(lambda: console.row.concurrency == 2, SECONDS, "it has two processes")
    assert not console.ran(waits)
    console.pull("unpark", console.node)
    until(lambda: console.ran(waits), SECONDS, "what waited runs")
    before = {pid for pid, _ in console.row.children}
    console.pull("restart", console.node)
    until(lambda: replaced(console, before), SECONDS, "every process is another one")
    held = console.send(HOLD, 60)
    until(lambda: console.runs(held), SECONDS, "a task runs")
    console.pull("stop", console.node)
    until(lambda: not console.runs(held) and console.place.depth(QUEUE) == 1, SECONDS, "its message is back")
    console.pull("purge", QUEUE, count="1")
    console.pull("unpark", console.node)


def replaced(console: Console, before: set[int]) -> bool:
    wishes.wake_workers()
    pids = {pid for pid, _ in console.row.children}
    return len(pids) == 2 and not pids & before


def task_levers(console: Console) -> None:
    held = console.send(HOLD, 60)
    until(lambda: console.runs(held), SECONDS, "a task runs")
    console.pull("cancel", held)
    until(lambda: not console.runs(held), SECONDS, "it has ended")
    assert not console.ran(held)
    console.pull("disable", SUCCEED)
    # A worker that has closed its queue has read all wishes.
    console.pull("pause", QUEUE)
    until(console.is_closed, SECONDS, "the worker has read the wishes")
    console.pull("resume", QUEUE)
    aside = console.send(SUCCEED)
    until(lambda: Letter.objects.filter(task_id=aside, state="set aside").exists(), SECONDS, "it is set aside")
    assert not console.ran(aside)
    console.pull("enable", SUCCEED)
    until(lambda: console.ran(aside), 30, "it runs")
    entry = PeriodicTask.objects.create(
        name="ours", task=SUCCEED, interval=IntervalSchedule.objects.create(every=1, period="days")
    )
    runs = console.worker.text.count("] succeeded")
    console.pull("run-entry", entry.name)
    until(lambda: console.worker.text.count("] succeeded") > runs, SECONDS, "the entry's task runs once")
