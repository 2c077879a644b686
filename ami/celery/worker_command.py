"""What the command line of ``celery worker`` names, and the rows that it consumes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click
from celery.utils.sysinfo import is_auto_concurrency
from celery.utils.text import str_to_list
from click.core import ParameterSource

from ami.topology.app import APP
from ami.topology.errors import TopologyError
from ami.topology.topology import Topology
from ami.topology.workload import Workload

#: Celery's setting of each option of a worker that a row decides; ``worker.concurrency=2`` on the command line sets it.
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "concurrency": "worker_concurrency",
        "prefetch_multiplier": "worker_prefetch_multiplier",
        "soft_time_limit": "task_soft_time_limit",
        "time_limit": "task_time_limit",
        "max_tasks_per_child": "worker_max_tasks_per_child",
        "max_memory_per_child": "worker_max_memory_per_child",
        "pool": "worker_pool",
    }
)

#: Where an option that is not on the command line comes from. A variable of Celery's names none: it would hold for the
#: workers of all queues.
NOT_NAMED = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, ParameterSource.ENVIRONMENT)


@dataclass(frozen=True)
class WorkerCommand:
    """One command line. ``named`` are the options that it gives, keys of SETTINGS; Celery has defaults for the others.

    ``autoscale`` is the largest number of children that it names.
    """

    named: Mapping[str, Any]
    queues: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    autoscale: int | None = None
    has_beat: bool = False

    def rows(self, topology: Topology, known: Mapping[str, Any]) -> tuple[Workload, ...]:
        """Return the rows of the queues that it consumes; ``known`` are the queues that Celery knows, by name.

        Raises:
            TopologyError: a queue is unknown, none remains, or it names none and several remain.
        """
        for queue in (*self.queues, *self.excluded):
            if queue not in known:
                topology.workload(queue)
        consumed = [queue for queue in self.queues or known if queue not in self.excluded]
        if not consumed:
            raise TopologyError(
                f"This worker would consume no queue, since -X excludes {', '.join(self.excluded) or 'none'}. Run "
                f"'celery -A {APP} worker -Q QUEUE' without -X."
            )
        rows = tuple(row for row in topology.workloads if row.queue in consumed)
        if len(rows) > 1 and not self.queues:
            raise TopologyError(
                f"This worker names no queue and would consume {len(rows)}: {', '.join(row.queue for row in rows)}. "
                f"Run 'celery -A {APP} worker -Q QUEUE' with one of them, or 'python -m ami.topology all', which "
                "starts one worker per queue."
            )
        return rows


def context() -> click.Context | None:
    """Return the context of the ``celery worker`` that this process runs; None in a program that makes a worker."""
    found = click.get_current_context(silent=True)
    return found if found and found.info_name == "worker" else None


def read(app: Any, options: Mapping[str, Any]) -> WorkerCommand:
    """Return what names the worker that is made with ``options``, the arguments of ``app.Worker``.

    On the command line an option counts as named if it or its setting (``worker.concurrency=2``) is given; in a
    program, if it is not None. Its variable (``CELERY_WORKER_CONCURRENCY``) does not count.
    """
    given = {name: options.get(name) for name in SETTINGS}
    if command := context():
        settings = app.loader.cmdline_config_parser(command.args, "worker")
        for name, setting in SETTINGS.items():
            if command.get_parameter_source(name) in NOT_NAMED:
                given[name] = settings.get(setting)
    given["concurrency"] = _number(given["concurrency"])
    if (prefetch := given["prefetch_multiplier"]) is not None and int(prefetch) < 0:
        raise TopologyError(f"The prefetch multiplier is {prefetch}; give a whole number, 0 for no limit.")
    return WorkerCommand(
        named={name: value for name, value in given.items() if value is not None},
        queues=tuple(str_to_list(options.get("queues")) or ()),
        excluded=tuple(str_to_list(options.get("exclude_queues")) or ()),
        autoscale=_largest(options.get("autoscale")),
        has_beat=bool(options.get("beat")),
    )


def _number(concurrency: Any) -> Any:
    """Return a number, ``auto``, or None for Celery's default (also 0). Given as a setting it is text."""
    if concurrency is None or is_auto_concurrency(concurrency):
        return concurrency
    if str(concurrency).isdecimal():
        return int(concurrency) or None
    raise TopologyError(f"worker.concurrency is '{concurrency}'; give a whole number or auto.")


def _largest(autoscale: Any) -> int | None:
    """Return the largest of Celery's ``(10, 3)`` or ``"10,3"``."""
    if not autoscale:
        return None
    largest = max(int(each) for each in str_to_list(autoscale))
    if largest < 1:
        raise TopologyError("--autoscale allows no children; name at least 1.")
    return largest
