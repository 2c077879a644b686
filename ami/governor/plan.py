"""What one worker's governor needs, determined before the worker has a pool: settings, limits, run log, and hooks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from celery import concurrency
from celery.concurrency.prefork import TaskPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.signals import worker_shutdown, worker_shutting_down
from celery.utils.log import get_logger

from ami.governor import settings as governor_settings
from ami.governor import shared_memory
from ami.governor.child_process import ChildHooks
from ami.governor.consumer_class import managed_class
from ami.governor.crash_log import RunLog
from ami.governor.errors import GovernorError
from ami.governor.kernel_kills import KernelKills
from ami.governor.settings import GovernorSettings
from ami.governor.start_log import ASKED, StartLog
from ami.topology.errors import TopologyError
from ami.topology.workload import Workload

logger = get_logger(__name__)

#: Celery kills a child that is not up after 4 s; a staggered child may take this long beside its turn.
START_SECONDS = 10.0

#: Celery has no setting for a hard limit: this name may stand beside its ``worker_max_memory_per_child``. KiB.
HARD_LIMIT_SETTING = "worker_hard_memory_per_child"

SINGLE_JOB_REFUSED = (
    "Configuration refused: WORKER_SINGLE_JOB_MODE needs the prefork pool and a broker with an event loop (RabbitMQ, "
    "Redis): a thread does not release its memory. Set ANTENNA_<KEY>_POOL=prefork, or leave it off."
)
POOL_REFUSED = (
    "Configuration refused: the governor works with the pools prefork, threads and solo, and this worker's is {pool}. "
    "Start it with --pool prefork, threads or solo, or set MEMORY_GOVERNOR=off."
)
LIMITS_REFUSED = (
    "Configuration refused: a process's hard memory limit ({hard} KiB) must be above its soft limit ({soft} KiB), or "
    "its task would be ended before the process can be recycled."
)


@dataclass(frozen=True)
class Options:
    """What `ami.governor.install` was given; limits in KiB, None where Celery's settings decide."""

    soft_kib: int | None = None
    hard_kib: int | None = None
    settings: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    paused: Callable[[str], bool] = lambda _: False


class Plan:
    """The settings, limits and run log of one worker's governor, determined before the worker has a pool."""

    def __init__(self, worker: Any, options: Options | None = None) -> None:
        options = options or Options()
        self.row = _row_of(worker.app)
        self.settings = _settings_of(self.row, options)
        queue = self.row.queue if self.row else ""
        self.paused = lambda: options.paused(queue)
        self.run_log = _run_log_of(self.settings, worker.hostname)
        self.start_log = _start_log_of(self.run_log)
        self.kernel_kills = KernelKills()
        self.soft_kib, self.hard_kib = _limits_of(worker, self.row, options)
        if self.settings.memory_governor != "off":
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
        pool = concurrency.get_implementation(worker.pool_cls)
        forks = issubclass(pool, TaskPool)
        acts = self.settings.acts
        if _topology_of(worker.app) is None and not issubclass(pool, (TaskPool, ThreadPool, SoloPool)):
            raise SystemExit(POOL_REFUSED.format(pool=_name_of(pool)))
        if self.settings.worker_single_job_mode and not (forks and worker.use_eventloop):
            raise SystemExit(SINGLE_JOB_REFUSED)
        amqp = worker.app.amqp
        amqp.Consumer = managed_class(amqp.Consumer)
        if forks:
            shared_memory.keep_shared()
        if forks and acts and worker.use_eventloop:
            # The governor compares the child's present size after each task; Celery compares its peak.
            worker.max_memory_per_child = None
        stagger = self.settings.worker_stagger_seconds if forks and acts else 0.0
        if stagger:
            turns = (worker.concurrency or 1) * stagger
            worker.app.conf.worker_proc_alive_timeout = START_SECONDS + turns
        hard_kib = self.hard_kib if forks and acts else 0
        ceiling_kib = hard_kib if self.settings.memory_ceiling else 0
        folder = self.run_log.folder if self.run_log else None
        learns = self.settings.memory_reservation != "off"
        ChildHooks(folder, ceiling_kib, stagger, learns, hard_kib).install()


def _topology_of(app: Any) -> Any:
    """Return the topology of an application of this project; None for any other Celery application."""
    return getattr(app, "topology", None)


def _name_of(pool: type) -> str:
    """Return ``gevent`` for Celery's pool of that name, and the whole name of a pool that is not Celery's."""
    package, _, module = pool.__module__.rpartition(".")
    return module if package == "celery.concurrency" else f"{pool.__module__}.{pool.__qualname__}"


def _row_of(app: Any) -> Workload | None:
    topology, queues = _topology_of(app), list(app.amqp.queues.consume_from)
    try:
        return topology.workload(queues[0]) if topology and len(queues) == 1 else None
    except TopologyError:
        return None


def _settings_of(row: Workload | None, options: Options) -> GovernorSettings:
    try:
        return governor_settings.load(row, defaults=options.settings)
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


def _limits_of(worker: Any, row: Workload | None, options: Options) -> tuple[int, int]:
    """Return a child's soft and hard limit in KiB, 0 for none. The command line's soft limit takes precedence: above
    the row's it raises the hard limit, or a child would be ended before it could be recycled.
    """
    soft = int(worker.max_memory_per_child or 0)
    if row is not None:
        if not soft:
            return 0, 0
        return soft, row.child_limit_kib if soft <= row.max_memory_per_child_kib else soft + soft // 8
    configured = worker.app.conf.get("worker_max_memory_per_child")
    if options.soft_kib is not None and soft == int(configured or 0):  # The command line named no other one.
        soft = options.soft_kib
    hard = worker.app.conf.get(HARD_LIMIT_SETTING) if options.hard_kib is None else options.hard_kib
    hard = int(hard or 0)
    if 0 < hard <= soft:
        raise SystemExit(LIMITS_REFUSED.format(hard=hard, soft=soft))
    return soft, hard
