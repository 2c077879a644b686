"""What the governor sees of each of Celery's pools: how many places it has, what runs there, and what it weighs."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from celery.concurrency.asynpool import AsynPool
from celery.worker import state

from ami.governor.pool_children import Children
from ami.governor.probes import process
from ami.governor.reclaim import Child
from ami.governor.settings import GovernorSettings


class Crew:
    """A pool whose places are alike: threads, greenlets, the worker itself (solo), or the processes of a broker
    without an event loop, which fetch from one pipe, so that none can be picked.

    ``places`` is how many tasks may run now. A place that has just ended a task rests for the cooldown, and after the
    start of the worker the places open one by one, a stagger apart. ``rests`` says that a settled message changes
    ``places``. ``hard_kib`` 0 means that nobody is ended. ``baseline_kib`` is what the worker and all its fresh
    processes need (PSS), 0 until it was measured.
    """

    has_children = False
    soft_kib = hard_kib = 0

    def __init__(self, pool: Any, settings: GovernorSettings, multiplier: int, call_later: Callable[..., Any]) -> None:
        self.pool, self.multiplier, self.call_later = pool, multiplier, call_later
        self.changed: Callable[[], None] = lambda: None
        self.rests = bool(settings.worker_cooldown_seconds) and not self.has_children
        self.looks_between_tasks = type(pool).__module__.endswith("solo")
        self._settings = settings
        self._cooling: list[float] = []
        self._started_at = time.monotonic()
        self.baseline_kib = 0
        if settings.worker_stagger_seconds and not self.has_children:
            self._open_next()

    # --- places -------------------------------------------------------------------------------------------------

    @property
    def places(self) -> int:
        """How many tasks may run at once, now."""
        return max(0, self._opened - len(self._still_cooling()))

    @property
    def _opened(self) -> int:
        limit = int(self.pool.limit)
        if not self._settings.worker_stagger_seconds:
            return limit
        passed = time.monotonic() - self._started_at
        return min(limit, 1 + int(passed / self._settings.worker_stagger_seconds + 0.001))

    def settled(self) -> None:
        """A message is about to be given back: its place rests."""
        if self._settings.worker_cooldown_seconds:
            self._cooling.append(time.monotonic() + self._settings.worker_cooldown_seconds)
            self.call_later(self._settings.worker_cooldown_seconds + 0.01, self._changed)

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

    # --- what runs ----------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many tasks run."""
        return len(state.active_requests)

    @property
    def unstarted(self) -> int:
        """How many were handed to the pool and have not begun."""
        return sum(1 for request in _snapshot(state.reserved_requests) if request not in state.active_requests)

    @property
    def pids(self) -> list[int]:
        """The processes besides the worker's own."""
        return [child.pid for child in getattr(getattr(self.pool, "_pool", None), "_pool", ()) if child.pid]

    @property
    def default_task_kib(self) -> int:
        """What a task of which nothing is known is taken to add."""
        return 64 * 1024

    def measure_baseline(self) -> None:
        """Take what the worker has now for what it needs, once it has all its processes and none has outgrown them."""
        if not self.baseline_kib and self.places >= int(self.pool.limit):
            self.baseline_kib = self.own_kib()

    def own_kib(self) -> int:
        """PSS of the worker and its children, so that what they share counts once."""
        return sum(_pss(pid) for pid in (os.getpid(), *self.pids))

    def children(self) -> list[Child]:
        """Every child with its exact size (PSS)."""
        return []

    def running_children(self) -> list[Child]:
        """Those that run a task, with a size that is exact where it matters."""
        return []

    def recycle(self, *_: Any, **__: Any) -> None:
        """Replace a child."""

    def interrupt(self, *_: Any, **__: Any) -> bool:
        """Soft-limit the task of a child; return whether it ran one."""
        return False

    def end(self, *_: Any, **__: Any) -> bool:
        """End a child and its task; return whether it ran one."""
        return False

    def before_loop(self) -> None:
        """A loop is about to begin."""

    def counts(self) -> dict[str, int]:
        """How many children were recycled, by reason."""
        return {}


class PreforkCrew(Crew):
    """Celery's prefork pool on its event loop: the parent hands each task to a child that it has chosen."""

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
        #: The tasks that were told to stop, so that each is told once.
        self._interrupted: set[str] = set()
        self._children = Children(pool._pool, self._changed, call_later)
        if settings.memory_governor == "on":
            self._children.soft_kib = soft_kib
            self._children.single_job = settings.worker_single_job_mode
            self._children.cooldown_seconds = settings.worker_cooldown_seconds

    @property
    def places(self) -> int:
        """The children that run a task or could take one."""
        return self._children.ready

    def before_loop(self) -> None:
        """Make the pool fit for it."""
        self._children.before_loop()

    @property
    def default_task_kib(self) -> int:
        """What a child may grow to, when there is a limit."""
        return self.soft_kib or super().default_task_kib

    def children(self) -> list[Child]:
        """Every child that has started, with its PSS."""
        running = self._running()
        idle = set(self._children.idle())
        seen = [pid for pid in self.pids if pid in idle or pid in running]
        return [self._child(pid, _pss(pid), running.get(pid)) for pid in seen]

    def running_children(self) -> list[Child]:
        """Those that run a task. What is resident bounds PSS from above, so it stands for it far below the limits."""
        found = []
        for pid, request in self._running().items():
            kib = _rss(pid)
            near = min((limit for limit in (self.soft_kib, self.hard_kib) if limit), default=kib)
            found.append(self._child(pid, _pss(pid) if kib > near else kib, request))
        return found

    def recycle(self, pid: int, why: str) -> None:
        """Now when it is idle, after its task when it is not."""
        self._children.recycle(pid, why)

    def interrupt(self, pid: int) -> bool:
        """Raise ``SoftTimeLimitExceeded`` in the child's task."""
        request = self._running().get(pid)
        if request is None or not self._children.interrupt(pid):
            return False
        self._interrupted.add(request.id)
        return True

    def end(self, pid: int, task: str, used_kib: int) -> bool:
        """End the child; its task fails with ``MemoryLimitExceeded``."""
        return self._children.end(pid, task, used_kib, self.hard_kib)

    def counts(self) -> dict[str, int]:
        """How many children were recycled, by reason."""
        return dict(self._children.recycled)

    def _running(self) -> dict[int, Any]:
        running = {request.worker_pid: request for request in tuple(state.active_requests) if request.worker_pid}
        self._interrupted &= {request.id for request in running.values()}
        return running

    def _child(self, pid: int, kib: int, request: Any) -> Child:
        ran = time.time() - request.time_start if request is not None and request.time_start else 0.0
        task = request.name if request is not None else None
        told = request is not None and request.id in self._interrupted
        return Child(
            pid,
            kib,
            self._children.fresh_kib(pid),
            task,
            ran,
            self._children.leaving(pid),
            told,
            self._children.used(pid),
        )


def crew_of(
    pool: Any,
    settings: GovernorSettings,
    multiplier: int,
    call_later: Callable[..., Any],
    soft_kib: int,
    hard_kib: int,
) -> Crew:
    """Return what the governor sees of ``pool``, one of Celery's."""
    inner = getattr(pool, "_pool", None)
    if isinstance(inner, AsynPool):
        return PreforkCrew(pool, settings, multiplier, call_later, soft_kib, hard_kib)
    return Crew(pool, settings, multiplier, call_later)


def _snapshot(requests: Iterable[Any]) -> tuple[Any, ...]:
    """Copy one of Celery's sets of requests, from which another thread may take one meanwhile."""
    while True:
        try:
            return tuple(requests)
        except RuntimeError:  # It changed its size.
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
