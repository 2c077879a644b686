"""Wires what operators want into a worker: read before the first consume, compared in the loop, then reported."""

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import bootsteps
from celery.concurrency.solo import TaskPool as SoloPool
from celery.signals import worker_shutdown, worker_shutting_down
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Connection, Tasks

from ami.celery import connection_names, task_times, worker_records
from ami.celery.desired_state.child_control import ChildControl, started
from ami.celery.desired_state.pool_size import PoolSize, held_by
from ami.celery.desired_state.process_facts import process_facts, running_tasks, snapshot
from ami.celery.desired_state.reconciler import Reconciler
from ami.celery.desired_state.reporter import Reporter
from ami.celery.desired_state.task_limits import TaskLimits
from ami.celery.desired_state.wanted import Identity
from ami.celery.desired_state.wish_file import WishFile
from ami.celery.sweep_thread import SweepThread
from ami.celery.worker_records import WorkerReport
from ami.environment.reader import read
from ami.governor.bootstep import GovernorStep, later
from ami.topology.image import Image

logger = get_logger(__name__)

#: A worker that starts waits so long for the database before it goes by what it last knew.
FIRST_READ_SECONDS = 5.0


class ReadWishes(bootsteps.StartStopStep):
    """Reads the wishes before ``Tasks`` creates the consumer; the thread lives as long as the worker."""

    requires = (Connection,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.enabled = worker_records.connected() is not None
        consumer.desired_state = None

    def start(self, consumer: Any) -> None:
        """Start the thread, once, and wait for its first answer."""
        if consumer.desired_state is None:
            consumer.desired_state = DesiredState(consumer)
            consumer.desired_state.start()


class ApplyWishes(bootsteps.StartStopStep):
    """Runs after ``Tasks`` has created the consumer, and before the loop consumes."""

    requires = (Tasks, GovernorStep)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.enabled = worker_records.connected() is not None

    def start(self, consumer: Any) -> None:
        """Attach to the new connection's consumer."""
        consumer.desired_state.attach(consumer)

    def stop(self, consumer: Any) -> None:
        """Detach from a lost connection."""
        consumer.desired_state.detach()

    def info(self, consumer: Any) -> dict[str, Any]:
        """Return what ``celery -A config inspect stats`` shows."""
        desired: DesiredState | None = consumer.desired_state
        return {"desired_state": desired.info() if desired else None}


class DesiredState:
    """A worker's thread and its reconciler, and what connects them."""

    def __init__(self, consumer: Any) -> None:
        controller = consumer.controller
        self._consumer = consumer
        self._facts = process_facts(controller, read(Image, os.environ).antenna_version)
        self._reporter = Reporter(self.report, WishFile(_folder(controller)))
        self._sweep = SweepThread(controller.app, self._facts["node"], lambda: self._reporter.needs_sweep)
        self._reporter.changed = self._wake_loop
        identity = Identity(
            node=self._facts["node"],
            host=socket.gethostname(),
            service=self._facts["service"],
            queues=self._facts["queues"],
        )
        self._call_later = later(consumer)
        self._reconciler = Reconciler(
            identity,
            self._reporter,
            PoolSize(controller, held_by(controller)),
            TaskLimits(controller.app),
            ChildControl(self._call_later),
        )
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._connection = 0
        self._is_connected = self._is_stopping = False
        self._frames: tuple[Any, float] = (None, time.monotonic())
        worker_shutting_down.connect(self._stopping, weak=False, dispatch_uid="desired_state.stopping")
        worker_shutdown.connect(self._ended, weak=False, dispatch_uid="desired_state.ended")

    def start(self) -> None:
        self._reporter.start()
        self._sweep.start()
        if not self._reporter.first_read.wait(FIRST_READ_SECONDS):
            logger.error("Database not answered in %g s; the last known wishes hold", FIRST_READ_SECONDS)

    def attach(self, consumer: Any) -> None:
        """Close what is wanted closed before the first consume, and look again every few seconds."""
        self._reconciler.attach(consumer, lambda: _adapter(consumer))
        self._connection += 1
        self._is_connected = True
        self._frames = (None, time.monotonic())
        if consumer.hub:
            consumer.hub.add_reader(self._wake_reader, self._woken)
        self._call_later(0.1, self._look, self._connection)
        self._reporter.wake()

    def detach(self) -> None:
        self._connection += 1
        self._is_connected = False
        self._reconciler.detach()

    def wake(self) -> None:
        """Read the wishes now; remote control says that they have changed."""
        self._reporter.wake()
        for duty in worker_records.duties():
            duty.wake()

    def info(self) -> dict[str, Any]:
        return {**self._reconciler.info(), **self._reporter.info()}

    def report(self) -> WorkerReport:
        """Return what the worker's row says; called in the thread."""
        pool = self._consumer.pool
        adapter = _adapter(self._consumer)
        pids = adapter.pids if adapter is not None else []
        return WorkerReport(
            **self._facts,
            children=tuple(started(pids)),
            consumers=self._lease_owners(),
            is_connected=self._is_connected and not self._is_stopping,
            loop_age_seconds=round(time.monotonic() - self._reconciler.turned_at, 1),
            loop_allowance_seconds=self._allowance(),
            frame_age_seconds=round(time.monotonic() - self._frames[1], 1),
            connection_name=connection_names.incarnation(),
            database_name=connection_names.database_name(),
            is_parked=self._reconciler.wanted.is_parked,
            closed_queues=self._closed(),
            concurrency=int(getattr(pool, "num_processes", 0) or 0) if pool else 0,
            repairs=dict(self._reconciler.repairs),
            running=running_tasks(),
            unaccounted=self._reconciler.unaccounted,
            totals=task_times.totals(),
            governor=_governor_status(self._consumer),
        )

    def _closed(self) -> tuple[str, ...]:
        """Return the queues from which no task can begin; while disconnected, those that the next connection closes."""
        return self._reconciler.closed if self._is_connected else tuple(self._reconciler.wanted.closed)

    def _look(self, connection: int) -> None:
        if connection != self._connection:
            return
        seconds = 3.0
        try:
            self._note_frames()
            seconds = self._reconciler.look()
        finally:
            self._call_later(seconds, self._look, connection)

    def _woken(self, *_: Any) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)
        # In the timer, where an error other than the connection's is logged; here it would end the worker.
        self._call_later(0, self._reconciler.look)

    def _wake_loop(self) -> None:
        """Make the loop look now; called in the thread."""
        if self._consumer.hub:
            with suppress(BlockingIOError):  # The pipe is full: the loop is woken all the same.
                os.write(self._wake_writer, b"x")
        else:
            self._consumer.call_soon(self._reconciler.look)

    def _note_frames(self) -> None:
        """Note when the broker's connection last received anything."""
        link = getattr(self._consumer.connection, "connection", None) if self._consumer.connection else None
        renewer = getattr(link, "_lease_renewer", None)
        mark = getattr(link, "bytes_recv", None) if renewer is None else renewer.turns
        if mark is None or mark != self._frames[0]:
            self._frames = (mark, time.monotonic())

    def _lease_owners(self) -> tuple[str, ...]:
        owner = getattr(getattr(self._consumer.connection, "connection", None), "owner", None)
        return (owner,) if isinstance(owner, str) else ()

    def _allowance(self) -> float:
        """Return for how long the task of a solo worker may still block its loop."""
        if not isinstance(self._consumer.pool, SoloPool):
            return 0.0
        limits = [request.time_limits[0] or request.task.time_limit for request in snapshot(state.active_requests)]
        limit = self._consumer.controller.time_limit
        return float(max((each or limit or 0 for each in limits), default=0))

    def _stopping(self, **_: Any) -> None:
        self._is_stopping = True

    def _ended(self, **_: Any) -> None:
        self._sweep.stop()
        self._reporter.stop()


def _governor_status(consumer: Any) -> dict[str, Any]:
    """Return what is shown of the worker's governor; empty while it has none."""
    step = next((step for step in consumer.steps if isinstance(step, GovernorStep)), None)
    return step.governor.summary() if step is not None and step.governor is not None else {}


def _adapter(consumer: Any) -> Any:
    """Return the governor's view of the pool; None while the worker has no governor."""
    step = next((step for step in consumer.steps if isinstance(step, GovernorStep)), None)
    return step.governor.pool if step is not None and step.governor is not None else None


def _folder(controller: Any) -> Path | None:
    plan = getattr(controller, "governor_plan", None)
    return plan.settings.state_folder(controller.hostname) if plan is not None else None


def install(app: Any) -> None:
    """Add the steps to every worker of ``app``, reading before its consumer exists."""
    Tasks.requires = (*Tasks.requires, ReadWishes)
    app.steps["consumer"].update((ReadWishes, ApplyWishes))
