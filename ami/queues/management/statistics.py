"""``manage.py queues statistics``: what waits and runs, per queue or task."""

from dataclasses import asdict
from typing import Any

from celery import current_app

from ami.queues import statistics
from ami.queues.management.result import Result
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parser: Any) -> None:
    parser.add_argument("--tasks", action="store_true", help="per task instead of per queue")


def show(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    """Return a row for each queue, or for each task that has a policy or runs."""
    if options["tasks"]:
        found = statistics.of_tasks(topology)
    else:
        with current_app.connection_for_read() as connection:
            found = statistics.of_queues(topology, connection)
    columns = ("task" if options["tasks"] else "queue", "queue size", "active jobs", "workers alive", "of", "beat")
    cells = [
        (
            each.name,
            "unknown" if each.queue_size is None else each.queue_size,
            each.active_jobs,
            each.alive_workers,
            each.total_workers,
            "alive" if each.master_thread_alive else "silent",
        )
        for each in found
    ]
    return Result([asdict(each) for each in found], cells, columns)


RUNS = {"statistics": show}
