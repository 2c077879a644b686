"""A common view of Celery's pools: how many places one has, what runs there, and how much memory it takes."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.worker import state

from ami import celery_internals
from ami.governor.errors import MemoryLimitExceeded
from ami.governor.pool_children import Children
from ami.governor.probes import process
from ami.governor.reclaim import Child
from ami.governor.settings import GovernorSettings


class PoolAdapter:
    """A pool whose places are alike: threads, greenlets, the worker itself (solo), or the processes of a broker
    without an event loop, which share one pipe, so that none can be picked.

    ``places`` is how many tasks may run now. A place cools down after its task, and after the start of the worker the
    places open one by one, a stagger apart. ``has_cooldown``: a settled message changes ``places``. ``hard_kib`` 0: no
    child is ended. ``baseline_kib`` is what the worker and its fresh processes need (PSS), 0 until it is measured.
    """

    has_children = False
    soft_kib = hard_kib = 0
    #: Celery's, where the worker has one.
    autoscaler: Any = None

    def __init__(self, pool: Any, settings: GovernorSettings, multiplier: int, call_later: Callable[..., Any]) -> None:
        self.pool, self.multiplier, self.call_later = pool, multiplier, call_later
        self.changed: Callable[[], None] = lambda: None
        self.has_cooldown = bool(settings.worker_cooldown_seconds) and not self.has_children
        self.checks_between_tasks = isinstance(pool, SoloPool)
        self._settings = settings
        self._cooling: list[float] = []
        self._started_at = time.monotonic()
        self.baseline_kib = 0
        if settings.worker_stagger_seconds and not self.has_children:
            self._open_next()

    @property
    def places(self) -> int:
        """How many tasks may run at once, now."""
        return max(0, self._opened - len(self._still_cooling()))

    @property
    def growth(self) -> int:
        """How many messages beyond its places make the autoscaler add one; 0 where it adds none here."""
        return 0

    @property
    def running(self) -> int:
        """How many tasks run."""
        return len(state.active_requests)

    @property
    def unstarted(self) -> int:
        """How many tasks the pool has received and not started."""
        return sum(1 for request in _snapshot(state.reserved_requests) if request not in state.active_requests)

    @property
    def pids(self) -> list[int]:
        """The processes besides the worker's own."""
        inner = celery_internals.inner_pool(self.pool)
        return [child.pid for child in celery_internals.processes(inner) if child.pid]

    @property
    def idle_pids(self) -> list[int]:
        """The processes that run no task, where a task is sent to one process alone."""
        return []

    @property
    def default_task_kib(self) -> int:
        """What an unknown task is assumed to add."""
        return 64 * 1024

    def settled(self) -> None:
        """Start the cooldown of the place whose message is about to be settled."""
        if self._settings.worker_cooldown_seconds:
            self._cooling.append(time.monotonic() + self._settings.worker_cooldown_seconds)
            self.call_later(self._settings.worker_cooldown_seconds + 0.01, self._changed)

    def measure_baseline(self) -> None:
        """Measure the baseline once, when the worker has all its processes and none has grown yet."""
        if not self.baseline_kib and self.places >= int(self.pool.limit):
            self.baseline_kib = self.own_kib()

    def own_kib(self) -> int:
        """PSS of the worker and its children, so that shared pages count once."""
        return sum(_pss(pid) for pid in (os.getpid(), *self.pids))

    def children(self) -> list[Child]:
        """Every child with its exact size (PSS)."""
        return []

    def running_children(self) -> list[Child]:
        """The children that run a task, with a size that is exact near the limits."""
        return []

    def recycle(self, *_: Any, **__: Any) -> None:
        """Replace a child."""

    def interrupt(self, *_: Any, **__: Any) -> bool:
        """Raise ``SoftTimeLimitExceeded`` in a child's task; return whether it ran one."""
        return False

    def end(self, *_: Any, **__: Any) -> bool:
        """Kill a child and fail its task for its memory; return whether it ran one."""
        return False

    def fail(self, pid: int, error: Exception) -> bool:  # noqa: ARG002 - for subclasses
        """Kill a child and fail its task with ``error``; return whether it ran one."""
        return False

    def before_loop(self) -> None:
        """Prepare the pool for a new event loop."""

    def counts(self) -> dict[str, int]:
        """How many children were recycled, by reason."""
        return {}

    @property
    def _opened(self) -> int:
        limit = int(self.pool.limit)
        if not self._settings.worker_stagger_seconds:
            return limit
        passed = time.monotonic() - self._started_at
        return min(limit, 1 + int(passed / self._settings.worker_stagger_seconds + 0.001))

    def _still_cooling(self) -> list[float]:
        now = time.monotonic()
        self._cooling = [until for until in self._cooling if until > now]
        return self._cooling

    def _open_next(self) -> None:
        if self._opened < int(self.pool.limit):
            self.call_later(self._settings.worker_stagger_seconds, self._open_next)
        self._changed()

    def _changed(self) -> None:
        self.changed()


class PreforkPoolAdapter(PoolAdapter):
    """Celery's prefork pool on its event loop: the parent sends each task to a child that it has chosen."""

    has_children = True

    def __init__(
        self,
        pool: Any,
        settings: GovernorSettings,
        multiplier: int,
        call_later: Callable[..., Any],
        soft_kib: int,
        hard_kib: int,
    ) -> None:
        super().__init__(pool, settings, multiplier, call_later)
        self.soft_kib, self.hard_kib = soft_kib, hard_kib
        #: The ids of the interrupted tasks: each is interrupted once.
        self._interrupted: set[str] = set()
        self._children = Children(celery_internals.inner_pool(pool), self._changed, call_later)
        if settings.acts:
            self._children.soft_kib = soft_kib
            self._children.ceiling_kib = hard_kib if settings.memory_ceiling else 0
            self._children.task_name = self._task_name
            self._children.single_job = settings.worker_single_job_mode
            self._children.cooldown_seconds = settings.worker_cooldown_seconds

    @property
    def places(self) -> int:
        return self._children.ready

    @property
    def growth(self) -> int:
        """1 while it may add a process: it does so for messages in the worker beyond the processes that there are."""
        scaler = self.autoscaler
        return int(scaler is not None and self.multiplier == 1 and scaler.processes < scaler.max_concurrency)

    @property
    def default_task_kib(self) -> int:
        return self.soft_kib or super().default_task_kib

    @property
    def idle_pids(self) -> list[int]:
        return self._children.idle()

    def before_loop(self) -> None:
        self._children.before_loop()

    def children(self) -> list[Child]:
        running = self._running()
        idle = set(self._children.idle())
        started = [pid for pid in self.pids if pid in idle or pid in running]
        return [self._child(pid, _pss(pid), running.get(pid)) for pid in started]

    def running_children(self) -> list[Child]:
        """Return RSS, an upper bound of PSS, for children far below their limits: PSS costs a thousand times more."""
        children = []
        for pid, request in self._running().items():
            kib = _rss(pid)
            near = min((limit for limit in (self.soft_kib, self.hard_kib) if limit), default=kib)
            children.append(self._child(pid, _pss(pid) if kib > near else kib, request))
        return children

    def recycle(self, pid: int, why: str) -> None:
        self._children.recycle(pid, why)

    def interrupt(self, pid: int) -> bool:
        request = self._running().get(pid)
        if request is None or not self._children.interrupt(pid):
            return False
        self._interrupted.add(request.id)
        return True

    def end(self, pid: int, task: str, used_kib: int) -> bool:
        return self.fail(pid, MemoryLimitExceeded(task, used_kib, self.hard_kib))

    def fail(self, pid: int, error: Exception) -> bool:
        return self._children.end(pid, error)

    def counts(self) -> dict[str, int]:
        return dict(self._children.recycled)

    def _running(self) -> dict[int, Any]:
        running = {request.worker_pid: request for request in tuple(state.active_requests) if request.worker_pid}
        self._interrupted &= {request.id for request in running.values()}
        return running

    def _task_name(self, pid: int) -> str:
        request = self._running().get(pid)
        return request.name if request is not None else "a task"

    def _child(self, pid: int, kib: int, request: Any) -> Child:
        return Child(
            pid,
            kib,
            self._children.fresh_kib(pid),
            task=request.name if request is not None else None,
            ran_seconds=time.time() - request.time_start if request is not None and request.time_start else 0.0,
            draining=self._children.draining(pid),
            interrupted=request is not None and request.id in self._interrupted,
            used=self._children.used(pid),
        )


def adapter_for(
    pool: Any,
    settings: GovernorSettings,
    multiplier: int,
    call_later: Callable[..., Any],
    soft_kib: int,
    hard_kib: int,
) -> PoolAdapter:
    """Return the adapter for ``pool``, one of Celery's."""
    if isinstance(celery_internals.inner_pool(pool), AsynPool):
        return PreforkPoolAdapter(pool, settings, multiplier, call_later, soft_kib, hard_kib)
    return PoolAdapter(pool, settings, multiplier, call_later)


def _snapshot(requests: Iterable[Any]) -> tuple[Any, ...]:
    """Copy one of Celery's sets of requests, from which another thread may remove one meanwhile."""
    while True:
        try:
            return tuple(requests)
        except RuntimeError:  # Its size changed during the iteration.
            continue


def _pss(pid: int) -> int:
    try:
        return process.pss_kib(pid)
    except OSError:
        return 0


def _rss(pid: int) -> int:
    try:
        return process.rss_kib(pid)
    except OSError:
        return 0
