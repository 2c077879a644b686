"""Connects telemetry to the signals it listens to."""

from celery.signals import task_postrun, task_prerun

from ami.telemetry import task_log, unrouted_tasks


def connect() -> None:
    """Connect every listener; connecting again changes nothing."""
    task_prerun.connect(task_log.started, dispatch_uid="telemetry.journal.started")  # First: counting takes time.
    task_prerun.connect(unrouted_tasks.count, dispatch_uid="telemetry.unrouted")
    task_postrun.connect(task_log.finished, dispatch_uid="telemetry.journal.finished")
