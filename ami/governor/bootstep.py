"""Wires the governor into a Celery worker: before its pool exists, after each connect, and to its timer."""

from collections.abc import Callable
from typing import Any

from celery import bootsteps, concurrency
from celery.concurrency.prefork import TaskPool
from celery.signals import worker_init, worker_shutdown, worker_shutting_down
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Tasks

from ami.governor import settings as governor_settings
from ami.governor.announcer import ignore_event
from ami.governor.child_process import ChildHooks
from ami.governor.crash_log import RunLog
from ami.governor.errors import GovernorError
from ami.governor.governor import Governor
from ami.governor.kernel_kills import KernelKills
from ami.governor.pool_adapters import adapter_for
from ami.governor.settings import GovernorSettings
from ami.governor.start_log import ASKED, StartLog
from ami.topology.errors import TopologyError
from ami.topology.workload import Workload

logger = get_logger(__name__)

#: Celery kills a child that is not up after 4 s; a staggered child may take this long beside its turn.
START_SECONDS = 10.0

SINGLE_JOB_REFUSED = (
    "Configuration refused: WORKER_SINGLE_JOB_MODE needs the prefork pool and a broker with an event loop (RabbitMQ, "
    "Redis): a thread does not release its memory. Set ANTENNA_<KEY>_POOL=prefork, or leave it off."
)

#: The first timed check of a new connection runs in its loop; whether to hold was decided before.
FIRST_CHECK_SECONDS = 0.1


class Plan:
    """The settings, limits and run log of one worker's governor, determined before the worker has a pool."""

    def __init__(self, worker: Any, paused: Callable[[str], bool]) -> None:
        self.row = _row_of(worker.app)
        self.settings = _settings_of(self.row)
        queue = self.row.queue if self.row else ""
        self.paused = lambda: paused(queue)
        self.run_log = _run_log_of(self.settings, worker.hostname)
        self.start_log = _start_log_of(self.run_log)
        self.kernel_kills = KernelKills()
        self.soft_kib, self.hard_kib = _limits_of(worker, self.row)
        self._prepare(worker)

    def starts(self) -> dict[str, Any] | None:
        """Return when the worker was started and restarted; None without a governor.

        ``restarts`` is None where the state folder cannot be used. ``kernel_kills``: processes of its container that
        the kernel killed since the start, None where that is unknown.
        """
        if self.settings.memory_governor == "off":
            return None
        known = self.start_log.info() if self.start_log else {"restarts": None}
        return {**known, "kernel_kills": self.kernel_kills.count()}

    def _prepare(self, worker: Any) -> None:
        """Adapt the settings of the pool, and install the hooks of its children."""
        if self.settings.memory_governor == "off":
            return
        forks = concurrency.get_implementation(worker.pool_cls) is TaskPool
        acts = self.settings.acts
        if self.settings.worker_single_job_mode and not (forks and worker.use_eventloop):
            raise SystemExit(SINGLE_JOB_REFUSED)
        if forks and acts and worker.use_eventloop:
            # The governor compares the child's present size after each task; Celery compares its peak.
            worker.max_memory_per_child = None
        stagger = self.settings.worker_stagger_seconds if forks and acts else 0.0
        if stagger:
            turns = (worker.concurrency or 1) * stagger
            worker.app.conf.worker_proc_alive_timeout = START_SECONDS + turns
        ceiling_kib = self.hard_kib if forks and acts and self.settings.memory_ceiling else 0
        folder = self.run_log.folder if self.run_log else None
        ChildHooks(folder, ceiling_kib, stagger, self.settings.memory_reservation != "off").install()


class GovernorStep(bootsteps.StartStopStep):
    """Runs after ``Tasks`` has created the consumer, and before the loop consumes."""

    requires = (Tasks,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        self.plan: Plan = consumer.controller.governor_plan
        self.enabled = self.plan.settings.memory_governor != "off"
        self.governor: Governor | None = None
        self._connection = 0
        if self.plan.settings.acts:
            # Before Tasks starts, when Celery's strategies keep a reference to it.
            consumer.apply_eta_task = _StartOrRequeue(consumer)
        super().__init__(consumer, **options)

    def start(self, consumer: Any) -> None:
        """Attach to the new connection's consumer; a hold stays in force."""
        if self.governor is None:
            self.governor = self._governor(consumer)
        events = consumer.event_dispatcher
        event = events.send if events and events.enabled else ignore_event
        self.governor.pool.before_loop()
        self.governor.attach(consumer.task_consumer, consumer.call_soon, event)
        self._connection += 1
        # Later: Celery's loop cannot register a pool while its children are being replaced.
        self.governor.pool.call_later(FIRST_CHECK_SECONDS, self._check, consumer, self._connection)

    def stop(self, _: Any) -> None:
        """Detach from a lost connection."""
        self._connection += 1
        if self.governor is not None:
            self.governor.detach()

    def info(self, _: Any) -> dict[str, Any]:
        """What ``celery -A config inspect stats`` shows."""
        return {"governor": self.governor.info() if self.governor else None, "starts": self.plan.starts()}

    def _governor(self, consumer: Any) -> Governor:
        plan = self.plan

        def call_later(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
            if consumer.hub:
                return consumer.timer.call_after(seconds, function, args)
            # Here the timer has its own thread; its calls must run on the loop's thread.
            return consumer.timer.call_after(seconds, consumer.call_soon, (function, *args))

        multiplier = max(1, int(consumer.prefetch_multiplier))
        adapter = adapter_for(consumer.pool, plan.settings, multiplier, call_later, plan.soft_kib, plan.hard_kib)
        return Governor(plan.settings, adapter, plan.run_log, plan.paused)

    def _check(self, consumer: Any, connection: int) -> None:
        if connection != self._connection or self.governor is None:
            return
        seconds = self.plan.settings.memory_check_interval
        try:
            seconds = self._guarded(self.governor.observe) or seconds
            self.governor.adjust()  # Unguarded: Celery's loop handles the errors of the broker's connection.
            self._guarded(self.governor.act)
        finally:
            # Also after an error: the loop without a hub logs a callback's connection error and continues.
            self.governor.pool.call_later(seconds, self._check, consumer, connection)

    def _guarded(self, step: Callable[[], Any]) -> Any:
        """Log an error instead of raising it: the last decision stays in force, and tasks continue."""
        try:
            return step()
        except Exception:
            logger.exception("Governor check failed; retrying in %g s", self.plan.settings.memory_check_interval)
            return None


def install(app: Any, paused: Callable[[str], bool] = lambda _: False) -> None:
    """Add the governor to every worker of ``app``; ``paused`` returns whether an operator has paused a queue."""

    def plan(sender: Any = None, **_: Any) -> None:
        if sender.app is app:
            sender.governor_plan = Plan(sender, paused)

    worker_init.connect(plan, weak=False, dispatch_uid="governor.plan")
    app.steps["consumer"].add(GovernorStep)


class _StartOrRequeue:
    """Starts a task that is due, or requeues its message when no slot is free."""

    def __init__(self, consumer: Any) -> None:
        self._consumer, self._start = consumer, consumer.apply_eta_task

    def __call__(self, request: Any) -> None:
        if self._consumer.hub:
            self._decide(request)
        else:  # This is the timer's thread.
            self._consumer.call_soon(self._decide, request)

    def _decide(self, request: Any) -> None:
        if not self._consumer.task_consumer.over_capacity:
            self._start(request)
            return
        request.reject(requeue=True)
        state.task_ready(request)
        self._consumer.qos.decrement_eventually()


def _row_of(app: Any) -> Workload | None:
    queues = list(app.amqp.queues.consume_from)
    try:
        return app.topology.workload(queues[0]) if len(queues) == 1 else None
    except TopologyError:
        return None


def _settings_of(row: Workload | None) -> GovernorSettings:
    try:
        return governor_settings.load(row)
    except GovernorError as error:
        raise SystemExit(f"Configuration refused: {error}") from None


def _run_log_of(settings: GovernorSettings, node: str) -> RunLog | None:
    if settings.memory_governor == "off":
        return None
    try:
        run_log = RunLog(settings.state_folder(node))
    except OSError as error:
        logger.warning("Crash attribution disabled: cannot write GOVERNOR_STATE_DIR: %r", error, extra={"worker": node})
        return None
    worker_shutting_down.connect(lambda **_: run_log.mark_stopping(), weak=False, dispatch_uid="governor.run_log")
    return run_log


def _start_log_of(run_log: RunLog | None) -> StartLog | None:
    """Return the log of starts beside the run log, whose lock it needs."""
    if run_log is None:
        return None
    try:
        start_log = StartLog(run_log.folder, run_log.running())
    except OSError as error:
        logger.warning("Restarts not counted: cannot write GOVERNOR_STATE_DIR: %r", error)
        return None
    uid = "governor.start_log"
    worker_shutting_down.connect(lambda **_: start_log.mark_ended(ASKED), weak=False, dispatch_uid=uid)
    worker_shutdown.connect(lambda sender, **_: start_log.mark_exit(sender.exitcode), weak=False, dispatch_uid=uid)
    return start_log


def _limits_of(worker: Any, row: Workload | None) -> tuple[int, int]:
    """Return a child's soft and hard limit in KiB, 0 for none. The command line's soft limit takes precedence: above
    the row's it raises the hard limit, or a child would be ended before it could be recycled.
    """
    soft = int(worker.max_memory_per_child or 0)
    if row is None or not soft:
        return soft, 0
    return soft, row.child_limit_kib if soft <= row.max_memory_per_child_kib else soft + soft // 8
