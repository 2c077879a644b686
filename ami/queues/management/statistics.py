"""``manage.py queues statistics``: what waits and runs, per queue or task."""

from typing import Any

from celery import current_app

from ami.queues import statistics
from ami.queues.management.result import Result, listed
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
    shown = ("name", _size, "active_jobs", "alive_workers", "total_workers", _beat)
    return listed(found, shown, columns)


def _size(found: statistics.Statistics) -> int | str:
    return "unknown" if found.queue_size is None else found.queue_size


def _beat(found: statistics.Statistics) -> str:
    return "alive" if found.master_thread_alive else "silent"


RUNS = {"statistics": show}
