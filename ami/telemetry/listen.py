"""Connects telemetry to the signals it listens to."""

from celery.signals import task_postrun, task_prerun

from ami.telemetry import journal, unrouted


def connect() -> None:
    """Connect every listener; connecting again changes nothing."""
    task_prerun.connect(journal.started, dispatch_uid="telemetry.journal.started")  # First: counting takes time.
    task_prerun.connect(unrouted.count, dispatch_uid="telemetry.unrouted")
    task_postrun.connect(journal.finished, dispatch_uid="telemetry.journal.finished")
