"""The prefork pool of a worker, which keeps the tasks already written to its children."""

from typing import Any

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool


class PreforkPool(AsynPool):
    """Celery's pool, which keeps each task written to a child when its worker shuts down or loses its connection.

    Celery 5.7 discards every task that no child has accepted, also one that is already in a child's pipe. That task
    runs, but its result is dropped and its message is never acknowledged: it is redelivered and runs again. The child
    waits 30 s for its dropped result to be counted (``billiard.pool.Worker._ensure_messages_consumed``).
    """

    def flush(self) -> None:
        """Discard only tasks not yet written to a child; the broker redelivers them. See ``AsynPool.flush``."""
        written = [job for job in self._cache.values() if job._write_to and not job._accepted]
        _mark(written, accepted=True)
        try:
            super().flush()
        finally:
            # Nothing was read meanwhile. If the child dies before it accepts the task, the pool must see it unaccepted.
            _mark(written, accepted=False)


def _mark(jobs: list[Any], *, accepted: bool) -> None:
    for job in jobs:
        job._accepted = accepted


def install() -> None:
    """Use this pool in every prefork worker with an event loop."""
    TaskPool.Pool = PreforkPool
