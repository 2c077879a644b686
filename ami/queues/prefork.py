"""The prefork pool of a worker: a task that a child has been sent is one that runs."""

from typing import Any

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool


class PreforkPool(AsynPool):
    """Celery's pool, which at a warm shutdown or a lost connection still expects what it has written to its children.

    Celery 5.7 forgets every task that no child has said to have begun, also one that lies in a child's pipe. That task
    runs, its result is thrown away and its message never acknowledged: it runs again elsewhere. The child, whose result
    nobody counts, then waits 30 s before it ends (``billiard.pool.Worker._ensure_messages_consumed``).
    """

    def flush(self) -> None:
        """Forget what no child has been sent; the broker delivers it again. See ``AsynPool.flush``."""
        written = [job for job in self._cache.values() if job._write_to and not job._accepted]
        _mark(written, accepted=True)
        try:
            super().flush()
        finally:
            # Nothing was read meanwhile: a child that ends before it begins the task must find it not accepted.
            _mark(written, accepted=False)


def _mark(jobs: list[Any], *, accepted: bool) -> None:
    for job in jobs:
        job._accepted = accepted


def install() -> None:
    """Let every prefork worker that reads its children on its event loop have this pool."""
    TaskPool.Pool = PreforkPool
