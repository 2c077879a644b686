"""The prefork pool of a worker, which keeps the tasks already written to its children."""

from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool

from ami import celery_internals


class PreforkPool(AsynPool):
    """Celery's pool, which keeps each task written to a child when its worker shuts down or loses its connection.

    Celery 5.7 discards every task that no child has accepted, also one that is already in a child's pipe. That task
    runs, but its result is dropped and its message is never acknowledged: it is redelivered and runs again. The child
    waits 30 s for its dropped result to be counted (``billiard.pool.Worker._ensure_messages_consumed``).
    """

    def flush(self) -> None:
        """Discard only tasks not yet written to a child; the broker redelivers them. See ``AsynPool.flush``."""
        written = [job for job in celery_internals.jobs(self) if celery_internals.is_in_pipe(job)]
        for job in written:
            celery_internals.set_accepted(job, True)
        try:
            super().flush()
        finally:
            # Nothing was read meanwhile. If the child dies before it accepts the task, the pool must see it unaccepted.
            for job in written:
                celery_internals.set_accepted(job, False)


def install() -> None:
    """Use this pool in every prefork worker with an event loop."""
    TaskPool.Pool = PreforkPool
