"""The Celery tasks of exports: thin doors around `writing` and `requesting`."""

from celery import Task, shared_task

from ami.celery.origin import of_request
from ami.exports.models import DataExport
from ami.exports.services import requests, writer
from ami.main.tasks import RETRIES
from ami.queues.publish import publish_successor, publish_task
from ami.queues.slices import Slice


@shared_task(bind=True, name="ami.exports.tasks.run_export", triggered_by="run_scheduled_exports", **RETRIES)
def run_export(self: Task, export_id: int) -> None:
    """Write an export, in slices; one that is finished or gone is left alone."""
    export = DataExport.objects.select_related("project").filter(pk=export_id).first()
    if export is not None and not writer.advance(export, Slice(self)):
        publish_successor(self, export_id=export_id)


@shared_task(bind=True, name="ami.exports.tasks.run_scheduled_exports", triggered_by="beat", **RETRIES)
def run_scheduled_exports(self: Task) -> int:
    """Create the exports that are due and publish the writing of each; return how many.

    They keep this tick's origin, so beat's exports are written on housekeeping and never in a person's way.
    """
    due = requests.due_exports()
    for export_id in due:
        publish_task(run_export, origin=of_request(self.request), export_id=export_id)
    return len(due)
