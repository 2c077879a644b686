"""The base class of every task of this project."""

import time
from typing import Any

from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Reject, TaskPredicate
from celery.utils.log import get_logger
from django.db import connection

from ami.celery import attempts, database_connections, disabled, fences, staged_calls, staged_runs, task_progress
from ami.celery import sensitive as sensitive_arguments
from ami.celery import tracebacks as tracebacks  # It listens to task_postrun.
from ami.celery.publish_bounds import MessageRefused
from ami.governor import memory_limit
from ami.governor.errors import CeilingReached, MemoryLimitExceeded

logger = get_logger(__name__)


class Task(DjangoTask):
    """A Django task whose messages are settled by :class:`ami.celery.request.Request`."""

    abstract = True
    Request = "ami.celery.request:Request"

    #: What publishes it, for operators: `manage.py queues tasks` shows it.
    triggered_by = ""

    #: Whether only the latest of several runs may commit: a redelivered message runs beside a frozen worker's. Its code
    #: calls `ami.queues.fence.check` in each transaction.
    fenced = False

    #: Seconds that the task may stay silent once it has called `beat`; then a hard time limit ends it. 0: any time.
    stall_seconds = 0

    #: The keyword argument that names the work, so that two messages about it are two runs; empty: the task's id.
    fence_by = ""

    #: The policy of `ami.admission.policies`; with one, a call is a row in the caller's transaction.
    unique: Any = None
    permits: Any = None
    rate: Any = None
    fair_by = ""
    group_by: Any = None
    in_order_by: Any = None
    outbox = False

    #: The names of arguments whose values are shown nowhere: not in logs, events, Flower, results or dead letters.
    sensitive: tuple[str, ...] = ()

    @property
    def has_policy(self) -> bool:
        """Whether the task declares a policy."""
        limits = self.permits or self.rate or self.fair_by
        return bool(self.outbox or self.unique or limits or self.group_by or self.in_order_by)

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Publish after the commit; a call of a task with a policy is a row of this transaction."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Publish after the commit; a call of a task with a policy is a row of this transaction."""
        if staged_calls.stages(self):
            self.apply_async(*args, **kwargs)
        else:
            super().apply_async_on_commit(*args, **kwargs)

    def beat(self, progress: str = "") -> None:
        """Report that the running task goes on, with up to 255 characters for operators: ``step 3 of 9``. Cheap."""
        task_progress.write(str(self.request.id), progress)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task. An error that means the process's memory ceiling was reached becomes a retry, since the next
        process starts empty, and after the last retry a failure that names the limit.
        """
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        self.request.antenna_began_at = time.time()
        try:
            if not self.request.is_eager:
                disabled.hold(self, args, kwargs)
                if not staged_runs.is_of_run(self):  # The starts of a call are counted by its row.
                    attempts.count(self)
            if self.fenced and not self.request.is_eager and not staged_calls.is_staged(self):
                fences.begin(self, kwargs)
            return staged_runs.run(self, args, kwargs)
        except fences.FenceLost as lost:
            fields = {"task": self.name, "task_id": self.request.id}
            logger.warning("Run ended, a later one has begun: %s", lost, extra=fields)
            raise Ignore from lost
        except Exception as error:
            sensitive_arguments.mask_error(error, sensitive_arguments.values(self, args, kwargs))
            if not self.request.is_eager:
                database_connections.drop_in_doubt()  # Before `on_failure`, which may ask the database.
                if not isinstance(error, TaskPredicate):
                    self._end_if_overtaken(error)
            if not isinstance(error, MemoryError | OSError | RuntimeError) or not memory_limit.is_reached(error):
                raise
            raise CeilingReached(exc=MemoryLimitExceeded(self.name, 0, memory_limit.allowed_kib)) from error

    def retry(self, *args: Any, exc: Exception | None = None, **options: Any) -> Any:
        """Publish the task again, unless a later run of it has begun: the error of a rescued run concerns nobody.

        Raises what Celery's does, Ignore for an overtaken run, and MessageRefused for what workers would bury.
        """
        if not self.request.called_directly:
            self._end_if_overtaken(exc)
        sensitive_arguments.mask_error(exc, sensitive_arguments.values(self, self.request.args, self.request.kwargs))
        try:
            return super().retry(*args, exc=exc, **options)
        except Reject as rejected:
            if isinstance(rejected.reason, MessageRefused):
                raise rejected.reason from exc  # A failure, so that its cause is on record.
            raise

    def _end_if_overtaken(self, error: Exception | None) -> None:
        """Raise Ignore in a run, or a fenced task, that may not commit any more; its connection was ended under it."""
        if not self.fenced and not staged_runs.is_of_run(self):
            return
        if not connection.in_atomic_block:
            database_connections.drop_in_doubt()
        if fences.is_lost():
            fields = {"task": self.name, "task_id": self.request.id}
            logger.warning("Run ended, a later one has begun: %s", repr(error)[:500], extra=fields)
            raise Ignore from error
