"""Connects telemetry to the signals it listens to."""

from typing import Any

from celery.signals import task_postrun, task_prerun, worker_process_shutdown, worker_shutdown
from django.db import transaction
from django.db.models.signals import post_save

from ami.queues.signals import tasks_changed, worker_changed
from ami.telemetry import task_log, unrouted_tasks


def connect() -> None:
    """Connect every listener; connecting again changes nothing."""
    task_prerun.connect(task_log.started, dispatch_uid="telemetry.journal.started")  # First: others take time.
    task_prerun.connect(unrouted_tasks.count, dispatch_uid="telemetry.unrouted")
    task_postrun.connect(task_log.finished, dispatch_uid="telemetry.journal.finished")
    task_postrun.connect(unrouted_tasks.after_task, dispatch_uid="telemetry.unrouted.after_task")
    worker_process_shutdown.connect(unrouted_tasks.at_exit, dispatch_uid="telemetry.unrouted.child_exit")
    worker_shutdown.connect(unrouted_tasks.at_exit, dispatch_uid="telemetry.unrouted.worker_exit")
    # Each operation writes an entry, whatever process it runs in.
    post_save.connect(_outdate, sender="queues.AuditEntry", dispatch_uid="telemetry.snapshot.operation")
    worker_changed.connect(_outdate, dispatch_uid="telemetry.snapshot.worker")
    tasks_changed.connect(_outdate_older, dispatch_uid="telemetry.snapshot.tasks")


def _outdate(**_: Any) -> None:
    from ami.telemetry.snapshots import shared  # It needs the models.

    transaction.on_commit(shared.outdate, robust=True)


def _outdate_older(**_: Any) -> None:
    from ami.telemetry.snapshots import shared

    transaction.on_commit(lambda: shared.outdate(shared.TASKS_SECONDS), robust=True)
