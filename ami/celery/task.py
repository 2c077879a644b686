"""The base class of every task of this project."""

from typing import Any

from celery.contrib.django.task import DjangoTask

from ami.celery import database_connections, tracebacks  # noqa: F401 - connects to task_postrun
from ami.governor import memory_limit
from ami.governor.errors import CeilingReached, MemoryLimitExceeded


class Task(DjangoTask):
    """A Django task whose messages are settled by :class:`ami.celery.request.Request`."""

    abstract = True
    Request = "ami.celery.request:Request"

    #: What publishes it, for operators: `manage.py queues tasks` shows it.
    triggered_by = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task. An error that means the process's memory ceiling was reached becomes a retry, since the next
        process starts empty, and after the last retry a failure that names the limit.
        """
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        try:
            return self.run(*args, **kwargs)
        except Exception as error:
            if not self.request.is_eager:
                database_connections.drop_in_doubt()  # Before `on_failure`, which may ask the database.
            if not isinstance(error, MemoryError | OSError | RuntimeError) or not memory_limit.is_reached(error):
                raise
            raise CeilingReached(exc=MemoryLimitExceeded(self.name, 0, memory_limit.allowed_kib)) from error
