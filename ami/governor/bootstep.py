"""Wires the governor into a Celery worker: before its pool is made, after each connect, and to its timer."""

from collections.abc import Callable
from typing import Any

from celery import bootsteps, concurrency
from celery.concurrency.prefork import TaskPool
from celery.signals import worker_init, worker_shutting_down
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Tasks

from ami.governor import settings as governor_settings
from ami.governor.child_process import ChildSide
from ami.governor.crash_log import Board
from ami.governor.errors import GovernorError
from ami.governor.governor import Governor
from ami.governor.pool_adapters import crew_of
from ami.governor.settings import GovernorSettings
from ami.topology.errors import TopologyError
from ami.topology.workload import Workload

logger = get_logger(__name__)

#: A child that has not said that it is up is killed by Celery after 4 s; beside its turn it may take so long.
START_SECONDS = 10.0

SINGLE_JOB_REFUSED = (
    "Configuration refused: WORKER_SINGLE_JOB_MODE needs the prefork pool and a broker with an event loop (RabbitMQ, "
    "Redis): a thread gives its memory back to nobody. Set ANTENNA_<KEY>_POOL=prefork, or leave it off."
)

#: A new connection's first look comes when its loop has begun; what to hold was decided before.
FIRST_LOOK_SECONDS = 0.1


class Plan:
    """What one worker's governor is made of, decided before the worker has a pool."""

    def __init__(self, worker: Any, paused: Callable[[str], bool]) -> None:
        self.row = _row_of(worker.app)
        self.settings = _settings_of(self.row)
        queue = self.row.queue if self.row else ""
        self.paused = lambda: paused(queue)
        self.board = _board_of(self.settings, worker.hostname)
        self.soft_kib, self.hard_kib = _limits_of(worker, self.row)
        self._prepare(worker)

    def _prepare(self, worker: Any) -> None:
        """Change what the pool will be made with, and what each child will do first."""
        if self.settings.memory_governor == "off":
            return
        forks = concurrency.get_implementation(worker.pool_cls) is TaskPool
        acts = self.settings.memory_governor == "on"
        if self.settings.worker_single_job_mode and not (forks and worker.use_eventloop):
            raise SystemExit(SINGLE_JOB_REFUSED)
        if forks and acts and worker.use_eventloop:
            # The governor looks after each task at what the child has now; Celery would at the most it ever had.
            worker.max_memory_per_child = None
        stagger = self.settings.worker_stagger_seconds if forks and acts else 0.0
        if stagger:
            turns = (worker.concurrency or 1) * stagger
            worker.app.conf.worker_proc_alive_timeout = START_SECONDS + turns
        ceiling_kib = self.hard_kib if forks and acts and self.settings.memory_ceiling else 0
        folder = self.board.folder if self.board else None
        ChildSide(folder, ceiling_kib, stagger, self.settings.memory_reservation != "off").install()


class GovernorStep(bootsteps.StartStopStep):
    """After ``Tasks`` has made the consumer, and before the loop lets it consume."""

    requires = (Tasks,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        self.plan: Plan = consumer.controller.governor_plan
        self.enabled = self.plan.settings.memory_governor != "off"
        self.governor: Governor | None = None
        self._connection = 0
        if self.plan.settings.memory_governor == "on":
            # Before Celery's strategies take hold of it, which is when Tasks starts.
            consumer.apply_eta_task = _StartOrReturn(consumer)
        super().__init__(consumer, **options)

    def start(self, consumer: Any) -> None:
        """Attach to the new connection's consumer; what was held stays held."""
        if self.governor is None:
            self.governor = self._governor(consumer)
        events = consumer.event_dispatcher
        event = events.send if events and events.enabled else lambda *_, **__: None
        self.governor.crew.before_loop()
        self.governor.attach(consumer.task_consumer, consumer.call_soon, event)
        self._connection += 1
        # Not now: Celery's loop cannot register a pool some of whose children are just being replaced.
        self.governor.crew.call_later(FIRST_LOOK_SECONDS, self._look, consumer, self._connection)

    def stop(self, _: Any) -> None:
        """Let go of a connection that is gone."""
        self._connection += 1
        if self.governor is not None:
            self.governor.detach()

    def info(self, _: Any) -> dict[str, Any]:
        """What ``celery -A config inspect stats`` shows of it."""
        return {"governor": self.governor.info() if self.governor else None}

    def _governor(self, consumer: Any) -> Governor:
        plan = self.plan

        def call_later(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
            if consumer.hub:
                return consumer.timer.call_after(seconds, function, args)
            # The timer has a thread of its own here; what it calls belongs on the loop's.
            return consumer.timer.call_after(seconds, consumer.call_soon, (function, *args))

        multiplier = max(1, int(consumer.prefetch_multiplier))
        crew = crew_of(consumer.pool, plan.settings, multiplier, call_later, plan.soft_kib, plan.hard_kib)
        return Governor(plan.settings, crew, plan.board, plan.paused)

    def _look(self, consumer: Any, connection: int) -> None:
        if connection != self._connection or self.governor is None:
            return
        seconds = self.plan.settings.memory_check_interval
        try:
            seconds = self._guarded(self.governor.observe) or seconds
            self.governor.adjust()  # Alone unguarded: what the broker's connection raises is for Celery's loop.
            self._guarded(self.governor.act)
        finally:
            # Whatever it raised: the loop without a hub logs a connection error of a callback, and goes on.
            self.governor.crew.call_later(seconds, self._look, consumer, connection)

    @staticmethod
    def _guarded(look: Callable[[], Any]) -> Any:
        """Whatever is wrong with the looking must not stop the work: what was decided last stays decided."""
        try:
            return look()
        except Exception:
            logger.exception("The governor could not look; it tries again.")
            return None


def install(app: Any, paused: Callable[[str], bool] = lambda _: False) -> None:
    """Add the governor to every worker of ``app``; ``paused`` says whether an operator has paused a queue."""

    def plan(sender: Any = None, **_: Any) -> None:
        if sender.app is app:
            sender.governor_plan = Plan(sender, paused)

    worker_init.connect(plan, weak=False, dispatch_uid="governor.plan")
    app.steps["consumer"].add(GovernorStep)


class _StartOrReturn:
    """Runs a task whose ETA has come, or gives its message back when no slot is free: it comes again when one is."""

    def __init__(self, consumer: Any) -> None:
        self._consumer, self._start = consumer, consumer.apply_eta_task

    def __call__(self, request: Any) -> None:
        if self._consumer.hub:
            self._decide(request)
        else:  # This is the timer's thread.
            self._consumer.call_soon(self._decide, request)

    def _decide(self, request: Any) -> None:
        if not self._consumer.task_consumer.overdrawn:
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


def _board_of(settings: GovernorSettings, node: str) -> Board | None:
    if settings.memory_governor == "off":
        return None
    try:
        board = Board(settings.state_folder(node))
    except OSError as error:
        logger.warning("Nobody will know which task ran when this worker is killed: %r (GOVERNOR_STATE_DIR)", error)
        return None
    worker_shutting_down.connect(lambda **_: board.end(), weak=False, dispatch_uid="governor.board")
    return board


def _limits_of(worker: Any, row: Workload | None) -> tuple[int, int]:
    """The soft and the hard limit of a child in KiB; 0 is none. The command line's soft limit holds."""
    soft = int(worker.max_memory_per_child or 0)
    return soft, row.child_limit_kib if row and soft else 0
