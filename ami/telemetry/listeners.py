"""Connects telemetry to the signals it listens to."""

from celery.signals import task_postrun, task_prerun, worker_process_shutdown, worker_shutdown

from ami.telemetry import task_log, unrouted_tasks


def connect() -> None:
    """Connect every listener; connecting again changes nothing."""
    task_prerun.connect(task_log.started, dispatch_uid="telemetry.journal.started")  # First: others take time.
    task_prerun.connect(unrouted_tasks.count, dispatch_uid="telemetry.unrouted")
    task_postrun.connect(task_log.finished, dispatch_uid="telemetry.journal.finished")
    task_postrun.connect(unrouted_tasks.after_task, dispatch_uid="telemetry.unrouted.after_task")
    worker_process_shutdown.connect(unrouted_tasks.at_exit, dispatch_uid="telemetry.unrouted.child_exit")
    worker_shutdown.connect(unrouted_tasks.at_exit, dispatch_uid="telemetry.unrouted.worker_exit")
