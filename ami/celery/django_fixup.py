"""Celery's support of Django, with database connections that a worker's child keeps between its tasks.

Celery's own closes every connection before and after each task, so that ``CONN_MAX_AGE`` has no effect.
"""

from typing import Any

from celery.fixups.django import DjangoFixup, DjangoWorkerFixup
from kombu.utils.objects import cached_property

from ami.celery import database_connections


class WorkerFixup(DjangoWorkerFixup):
    """Closes a connection only where it is in doubt or old; before a fork, all of them as Celery does."""

    def on_task_prerun(self, sender: Any, **_: Any) -> None:
        """Called before every task."""
        if not getattr(sender.request, "is_eager", False):
            database_connections.before_task()

    def on_task_postrun(self, sender: Any, **_: Any) -> None:
        """Called after every task."""
        if not getattr(sender.request, "is_eager", False):
            database_connections.after_task()
            self.close_cache()


class Fixup(DjangoFixup):
    """Installs :class:`WorkerFixup` in workers."""

    @cached_property
    def worker_fixup(self) -> WorkerFixup:
        """What listens to the worker's signals."""
        return WorkerFixup(self.app)


def fixup(app: Any) -> Fixup:
    """Return the installed support; the project always runs with Django's settings."""
    installed: Fixup = Fixup(app).install()
    return installed
