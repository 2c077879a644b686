"""Every registered task: its queue, the rule that routes it, its limits, and its publishers."""

import importlib
from dataclasses import dataclass
from typing import Any

from celery import current_app

from ami.celery import origin
from ami.celery.time_limits import TimeLimits, in_proportion
from ami.queues.schedule import declared
from ami.topology.topology import Topology


@dataclass(frozen=True)
class TaskRow:
    """One registered task as an operator sees it. Limits are seconds."""

    task: str
    queue: str
    rule: str
    routed: bool
    by_person: str
    by_beat: str
    soft_time_limit_seconds: float
    hard_time_limit_seconds: float
    max_retries: int | None
    every_seconds: int | None
    triggered_by: str


def load_tasks() -> None:
    """Import every module that holds tasks.

    Not through ``loader.import_default_modules``: its signal makes Celery run Django's checks, and a check calls this.
    """
    current_app.autodiscover_tasks(force=True)
    for module in current_app.conf.imports:
        importlib.import_module(module)


def registered() -> list[str]:
    """Return the names of this project's tasks, Celery's own apart."""
    load_tasks()
    return sorted(name for name in current_app.tasks if not name.startswith("celery."))


def rows(topology: Topology) -> list[TaskRow]:
    """Return a row per registered task, sorted by queue in the table's order, then by name."""
    beats = {scheduled.task: scheduled.every_seconds for scheduled in declared()}
    found = [_row(topology, current_app.tasks[name], beats.get(name)) for name in registered()]
    order = {queue: number for number, queue in enumerate(topology.queues)}
    return sorted(found, key=lambda row: (order[row.queue], row.task))


def _row(topology: Topology, task: Any, every_seconds: int | None) -> TaskRow:
    place = topology.place(task.name)
    workload = topology.workload(place.queue)
    limits = in_proportion(
        TimeLimits(task.soft_time_limit, task.time_limit),
        TimeLimits(workload.soft_time_limit_seconds, workload.hard_time_limit_seconds),
    )
    return TaskRow(
        task=task.name,
        queue=place.queue,
        rule=place.rule,
        routed=place.routed,
        by_person=topology.place(task.name, origin.PERSON).queue,
        by_beat=topology.place(task.name, origin.BEAT).queue,
        soft_time_limit_seconds=limits.soft or 0,
        hard_time_limit_seconds=limits.hard or 0,
        max_retries=task.max_retries,
        every_seconds=every_seconds,
        triggered_by=task.triggered_by,
    )
