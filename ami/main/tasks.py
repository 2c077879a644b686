"""The core's Celery tasks: thin wrappers around its services. Each may run twice, also concurrently."""

from typing import Any

from celery import Task, shared_task
from django.db import InterfaceError, OperationalError

from ami.main.models import BulkDeletion, Deployment, SourceImageCollection
from ami.main.services import (
    bulk_deletion,
    capture_sets,
    detection_projects,
    float_conversion,
    leases,
    login_attempts,
    public_urls,
    sessions,
    stale_flush,
    stale_marks,
    station_sync,
)
from ami.queues.publish import publish_successor
from ami.queues.slices import Slice

#: Only a deadlock or a lost database connection is retried; other errors are faults.
RETRIES: dict[str, Any] = {
    "autoretry_for": (OperationalError, InterfaceError),
    "retry_backoff": True,
    "max_retries": 5,
}


@shared_task(name="ami.main.tasks.refresh_event_calculated_fields", triggered_by="people (admin)", **RETRIES)
def refresh_event_calculated_fields(event_id: int) -> None:
    stale_flush.refresh_marked("event", event_id)


@shared_task(name="ami.main.tasks.refresh_deployment_calculated_fields", triggered_by="people (admin)", **RETRIES)
def refresh_deployment_calculated_fields(deployment_id: int) -> None:
    stale_flush.refresh_marked("deployment", deployment_id)


@shared_task(
    bind=True, name="ami.main.tasks.refresh_project_calculated_fields", triggered_by="people (admin)", **RETRIES
)
def refresh_project_calculated_fields(self: Task, project_id: int, marked: bool = False) -> None:
    """Recount all events and stations of a project, in slices."""
    if not marked:
        stale_flush.refresh_marked("project", project_id)
    if not stale_flush.flush(Slice(self), project_id):
        publish_successor(self, project_id=project_id, marked=True)


@shared_task(bind=True, name="ami.main.tasks.update_stale_counts", triggered_by="beat", **RETRIES)
def update_stale_counts(self: Task) -> bool | None:
    """Recount what is marked stale and fill copied columns, one worker at a time; the next tick continues.

    Returns whether nothing is left; None when another worker holds the lease.
    """
    # Correctness does not depend on the lease: two concurrent flushes only waste work.
    with leases.held("update_stale_counts") as held:
        if held is None:
            return None
        turn = Slice(self)
        return stale_flush.flush(turn) and detection_projects.fill(turn)


@shared_task(bind=True, name="ami.main.tasks.update_float_lists", triggered_by="beat", **RETRIES)
def update_float_lists(self: Task) -> bool | None:
    """Convert scores and logits that an earlier version wrote as JSON, in slices; the next tick continues.

    Returns whether all are converted; None when another worker holds the lease.
    """
    with leases.held("update_float_lists") as held:
        return None if held is None else float_conversion.convert(*held, Slice(self))


@shared_task(name="ami.main.tasks.update_login_attempts", triggered_by="beat", **RETRIES)
def update_login_attempts() -> int:
    """Delete sign-in attempts whose window has ended; return how many."""
    return login_attempts.purge()


@shared_task(
    bind=True,
    name="ami.main.tasks.update_public_urls",
    triggered_by="people (admin)",
    **RETRIES,
)
def update_public_urls(self: Task, deployment_id: int, base_url: str) -> None:
    """Set the public base URL of a station's captures, in slices."""
    if not public_urls.update_public_urls(deployment_id, base_url, Slice(self)):
        publish_successor(self, deployment_id=deployment_id, base_url=base_url)


@shared_task(bind=True, name="ami.main.tasks.regroup_events", triggered_by="people (admin)", **RETRIES)
def regroup_events(self: Task, deployment_id: int, marked: bool = False) -> str:
    """Group a station's captures into events, in slices; the station stays marked while another worker does."""
    if not marked:
        stale_marks.mark_stale("sessions", [deployment_id])
    outcome = sessions.regroup(deployment_id, Slice(self))
    if outcome is sessions.Outcome.MORE:
        publish_successor(self, deployment_id=deployment_id, marked=True)
    return outcome.value


@shared_task(bind=True, name="ami.main.tasks.populate_collection", triggered_by="people (admin)", **RETRIES)
def populate_collection(self: Task, collection_id: int) -> None:
    collection = SourceImageCollection.objects.filter(pk=collection_id).first()
    if collection is not None and not capture_sets.populate(collection, Slice(self)):
        publish_successor(self, collection_id=collection_id)


@shared_task(
    bind=True,
    name="ami.main.tasks.bulk_delete",
    triggered_by="people (admin)",
    fenced=True,
    fence_by="deletion_id",
    **RETRIES,
)
def bulk_delete(self: Task, deletion_id: int) -> None:
    """Delete the rows of a `BulkDeletion`, in slices."""
    deletion = BulkDeletion.objects.filter(pk=deletion_id).first()
    if deletion is not None and not bulk_deletion.advance_deletion(deletion, Slice(self)):
        publish_successor(self, deletion_id=deletion_id)


@shared_task(bind=True, name="ami.main.tasks.sync_source_images", triggered_by="people (admin)", **RETRIES)
def sync_source_images(self: Task, deployment_id: int, state: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Sync a station's captures with its storage source, in slices; None if the station was deleted."""
    station = Deployment.objects.select_related("data_source", "project").filter(pk=deployment_id).first()
    if station is None:
        return None
    reached = station_sync.sync(station, station_sync.SyncState(**state or {}), Slice(self)).as_dict()
    if not reached["finished"]:
        publish_successor(self, deployment_id=deployment_id, state=reached)
    return reached
