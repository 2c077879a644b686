"""The class of this application's workers: what the command line does not name is taken from the row."""

from typing import Any

import click
from celery.apps import worker
from celery.utils.log import get_logger

from ami.celery import worker_command, worker_limits
from ami.celery.worker_limits import WorkerLimits
from ami.topology.errors import TopologyError

logger = get_logger(__name__)


class Worker(worker.Worker):
    """Celery's, with the limits of its queue's row. ``limits`` is None where no row decides."""

    limits: WorkerLimits | None = None

    def on_before_init(self, **options: Any) -> None:
        """Refuse what contradicts the table before Celery prints anything."""
        self.limits = limits_of(self.app, options)
        super().on_before_init(**options)

    def setup_defaults(self, **options: Any) -> None:
        """Replace Celery's defaults before the worker has queues, a pool or a governor.

        Here, since the command line reads the prefetch multiplier before the signal `celeryd_init`, and every attribute
        is set after it.
        """
        super().setup_defaults(**options)
        for name, value in (self.limits.attributes if self.limits else {}).items():
            setattr(self, name, value)
        conf = self.app.conf
        conf.task_soft_time_limit, conf.task_time_limit = self.soft_time_limit, self.time_limit  # For its requests.
        if self.limits:
            conf.worker_concurrency = self.concurrency  # For its tasks, which share its slots.

    def on_start(self) -> None:
        """Log the warnings; before, logging is not set up."""
        super().on_start()
        if self.limits and self.limits.sizing:
            logger.info(self.limits.sizing)
        for warning in self.limits.warnings if self.limits else ():
            logger.warning(warning)


def limits_of(app: Any, options: Any) -> WorkerLimits | None:
    """Return the limits of the worker made with ``options``; None if no row decides, as in an application without rows.

    Raises:
        click.UsageError: they contradict the topology or the container; without a command line a `TopologyError`.
    """
    topology = getattr(app, "topology", None)
    if topology is None or not topology.workloads:
        return None
    try:
        command = worker_command.read(app, options)
        rows = command.rows(topology, app.amqp.queues)
        return worker_limits.decide(command, rows) if rows else None
    except TopologyError as error:
        if context := worker_command.context():
            raise click.UsageError(str(error), context) from None
        raise
