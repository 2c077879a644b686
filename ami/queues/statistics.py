"""How much waits and runs, per queue or task, under names that a program can rely on."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery import current_app
from django.db.models.functions import Now

from ami.admission.calls import is_due
from ami.admission.models import Call
from ami.celery.task_counts import queue_of
from ami.queues.models import Beat, Worker
from ami.queues.queue import queue_states
from ami.queues.rescue.verdict import Verdict
from ami.queues.tasks import load_tasks
from ami.topology.topology import Topology

#: Most ids that are listed.
MOST_IDS = 100
#: A worker that has not answered by then has no active jobs here.
ANSWER_SECONDS = 1.0
#: A beat that has not shown itself for so long does not tick.
SILENT = timedelta(seconds=60)


@dataclass(frozen=True)
class Statistics:
    """Of one queue, or of one task.

    ``queue_size`` are messages and calls that wait; None where the broker does not say: it does not tell the messages
    of two tasks apart, so that a task's are its calls that are rows. ``active_jobs`` run now, in the workers that
    answered; up to 100 of their ids are in ``active_job_ids``, and the oldest of the calls that wait as rows in
    ``queued_job_ids``. ``total_workers`` are the processes that the workers are to have, ``alive_workers`` those of
    workers that are not dead; ``master_thread_alive`` is whether a beat has shown itself within a minute.
    """

    name: str
    queue_size: int | None
    active_jobs: int
    active_job_ids: tuple[str, ...]
    queued_job_ids: tuple[str, ...]
    total_workers: int
    alive_workers: int
    master_thread_alive: bool


def of_queues(topology: Topology, connection: Any) -> list[Statistics]:
    """Return the statistics of every consumed queue, in the order of the table.

    Raises:
        django.db.Error: the database did not answer; what the broker's connection raises.
    """
    active = _active(lambda job: queue_of(job.get("delivery_info")))
    sizes, ids = _waiting("queue", topology.queues)
    workers, beat = list(Worker.objects.all()), _beat_is_alive()
    return [
        Statistics(
            state.queue,
            None if state.messages is None else state.messages + sizes.get(state.queue, 0),
            len(active.get(state.queue, ())),
            tuple(active.get(state.queue, ())[:MOST_IDS]),
            ids.get(state.queue, ()),
            *_processes(worker for worker in workers if state.queue in worker.queues),
            beat,
        )
        for state in queue_states(topology, connection)
    ]


def of_tasks(topology: Topology) -> list[Statistics]:
    """Return the statistics of every task that has a policy or a call, or runs now, by name.

    Raises:
        django.db.Error: the database did not answer; what the broker's connection raises.
    """
    load_tasks()
    active = _active(lambda job: str(job.get("name", "")))
    staged = {name for name, task in current_app.tasks.items() if getattr(task, "has_policy", False)}
    staged.update(Call.objects.order_by().values_list("task", flat=True).distinct())
    names = sorted(staged | active.keys())
    sizes, ids = _waiting("task", names)
    workers, beat = list(Worker.objects.all()), _beat_is_alive()
    found = []
    for name in names:
        queue = topology.place(name).queue
        processes = _processes(worker for worker in workers if queue in worker.queues)
        size = sizes.get(name, 0) if name in staged else None
        running = active.get(name, [])
        found.append(
            Statistics(name, size, len(running), tuple(running[:MOST_IDS]), ids.get(name, ()), *processes, beat)
        )
    return found


def _active(group: Any) -> dict[str, list[str]]:
    """Return the ids of what runs, the longest first, by what ``group`` says of a worker's answer."""
    answers = current_app.control.inspect(timeout=ANSWER_SECONDS).active() or {}
    found: dict[str, list[str]] = defaultdict(list)
    jobs = [job for jobs in answers.values() for job in jobs or ()]
    for job in sorted(jobs, key=lambda job: job.get("time_start") or 0.0):
        found[group(job)].append(str(job["id"]))
    return found


def _waiting(column: str, names: Iterable[str]) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Return how many calls wait as rows and are due, and the ids of the oldest, by queue or task."""
    sizes, ids = {}, {}
    for name in names:
        rows = Call.objects.filter(is_due(), run=None, **{column: name})
        if size := rows.count():
            sizes[name] = size
            ids[name] = tuple(rows.order_by("pk").values_list("task_id", flat=True)[:MOST_IDS])
    return sizes, ids


def _processes(workers: Iterable[Any]) -> tuple[int, int]:
    """Return how many processes these workers are to have, and how many those have that are not dead."""
    total = alive = 0
    for worker in workers:
        total += worker.concurrency
        if worker.verdict != Verdict.DEAD:
            alive += len(worker.children) or worker.concurrency
    return total, alive


def _beat_is_alive() -> bool:
    return Beat.objects.filter(seen_at__gte=Now() - SILENT).exists()
