"""The Celery tasks of exports: thin wrappers around `writer` and `requests`."""

from celery import Task, shared_task

from ami.celery.origin import of_request
from ami.exports.models import DataExport
from ami.exports.services import requests, writer
from ami.main.tasks import RETRIES
from ami.queues.publish import publish_many, publish_successor, signature
from ami.queues.slices import Slice


@shared_task(
    bind=True,
    name="ami.exports.tasks.run_export",
    triggered_by="run_scheduled_exports",
    fenced=True,
    fence_by="export_id",
    **RETRIES,
)
def run_export(self: Task, export_id: int) -> None:
    """Write an export, in slices; a finished or deleted one is skipped."""
    export = DataExport.objects.select_related("project").filter(pk=export_id).first()
    if export is not None and not writer.advance(export, Slice(self)):
        publish_successor(self, export_id=export_id)


@shared_task(bind=True, name="ami.exports.tasks.run_scheduled_exports", triggered_by="beat", **RETRIES)
def run_scheduled_exports(self: Task) -> int:
    """Create the due exports and publish a task for each; return how many.

    The tasks keep the origin of this tick, so scheduled exports run on housekeeping and do not delay users.
    """
    due = requests.due_exports()
    origin = of_request(self.request)
    publish_many([signature(run_export, origin=origin, export_id=export_id) for export_id in due])
    return len(due)
