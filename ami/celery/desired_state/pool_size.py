"""Keeps a worker's pool as large as wanted, within what its container holds."""

from typing import Any

from celery.concurrency.prefork import TaskPool
from celery.utils.log import get_logger

from ami import celery_internals
from ami.governor.container_capacity import children_held

logger = get_logger(__name__)


class PoolSize:
    """The size of one worker's pool; ``started_with`` is what it was started with.

    With an autoscaler the size changes by itself: there only a wish for a size counts.
    """

    def __init__(self, controller: Any, held: int | None = None) -> None:
        self._controller = controller
        self._held = held
        self.started_with = int(controller.concurrency or 1)

    @property
    def actual(self) -> int:
        """How many tasks the pool can run at once."""
        return int(self._controller.pool.num_processes)

    def wanted(self, wish: int | None) -> int:
        """Return the size for a wish, at most what the container holds; without one the size at the start."""
        if wish is None:
            return self.started_with
        return wish if self._held is None else min(wish, self._held)

    def adjust(self, wish: int | None, adapter: Any) -> bool:
        """Grow or shrink towards the wish, None for the start's size; return whether the size was another one.

        A process that runs a task is removed when its task has ended.
        """
        pool = self._controller.pool
        if wish is None and self._controller.autoscaler is not None:
            return False
        size, before = self.wanted(wish), self.actual
        if size == before or not hasattr(pool, "grow"):
            return False
        if self._controller.autoscaler is not None:
            self._controller.autoscaler.update(max=size, min=min(size, self._controller.min_concurrency))
        elif size > before:
            pool.grow(size - before)
        else:
            self._shrink(before - size, adapter)
        return True

    def _shrink(self, count: int, adapter: Any) -> None:
        """Remove idle processes first. Celery's own way may remove one that a task is on its way to."""
        inner = celery_internals.inner_pool(self._controller.pool)
        if adapter is None or not adapter.has_children:
            for _ in range(count):
                try:
                    self._controller.pool.shrink(1)
                except ValueError:  # All of them are busy; the next look tries again.
                    return
            return
        idle = adapter.idle_pids
        for pid in [*idle, *(pid for pid in adapter.pids if pid not in idle)][:count]:
            celery_internals.expect_fewer(inner)
            adapter.recycle(pid, "scale")


def held_by(controller: Any) -> int | None:
    """Return how many processes the worker's container holds; None where no row says so, or the pool has none."""
    topology, own = getattr(controller.app, "topology", None), getattr(controller, "own_queues", ())
    rows = [row for row in topology.workloads if row.queue in own] if topology else []
    if not rows or not isinstance(controller.pool, TaskPool):
        return None
    return min(children_held(row) for row in rows)
