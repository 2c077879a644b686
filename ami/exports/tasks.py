"""The Celery tasks of exports: thin wrappers around `writer` and `requests`."""

from celery import Task, shared_task

from ami.admission.policies import Permits, Unique
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
    unique=Unique(by=("export_id", "project_id")),
    permits=Permits(2, per="project_id"),
    fair_by="project_id",
    ignore_result=True,
    **RETRIES,
)
def run_export(self: Task, export_id: int, project_id: int) -> None:  # noqa: ARG001 - of its permits
    """Write an export, in slices, at most two of a project at once; a finished or deleted one is skipped."""
    export = DataExport.objects.select_related("project").filter(pk=export_id).first()
    if export is not None and not writer.advance(export, Slice(self)):
        publish_successor(self, export_id=export_id, project_id=export.project_id)


@shared_task(bind=True, name="ami.exports.tasks.run_scheduled_exports", triggered_by="beat", **RETRIES)
def run_scheduled_exports(self: Task) -> int:
    """Create the due exports and publish a task for each; return how many.

    The tasks keep the origin of this tick, so scheduled exports run on housekeeping and do not delay users.
    """
    due = requests.due_exports()
    origin = of_request(self.request)
    publish_many(
        [signature(run_export, origin=origin, export_id=pk, project_id=project) for pk, project in due.items()]
    )
    return len(due)
