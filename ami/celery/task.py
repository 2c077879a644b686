"""The base class of every task of this project."""

from typing import Any

from celery.contrib.django.task import DjangoTask

from ami.celery import tracebacks  # noqa: F401 - listens to the end of every task
from ami.governor import memory_limit
from ami.governor.errors import CeilingReached, MemoryLimitExceeded


class Task(DjangoTask):
    """A Django task whose messages are settled by :class:`ami.celery.request.Request`."""

    abstract = True
    Request = "ami.celery.request:Request"

    #: Who publishes it, in an operator's words; `manage.py queues tasks` shows it.
    triggered_by = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task. In a process with a ceiling of memory, an error that says so means that it was reached: a
        retry, since the next process starts empty, and at last a failure that says what was too much.
        """
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        try:
            return self.run(*args, **kwargs)
        except (MemoryError, OSError, RuntimeError) as error:
            if not memory_limit.is_reached(error):
                raise
            raise CeilingReached(exc=MemoryLimitExceeded(self.name, 0, memory_limit.allowed_kib)) from error
