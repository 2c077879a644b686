"""The core's Celery tasks: thin wrappers around its services. Each may run twice, also concurrently."""

import logging
from collections.abc import Sequence
from typing import Any

from celery import Task, shared_task
from celery.utils.log import get_task_logger
from django.conf import settings
from django.db import InterfaceError, OperationalError

from ami.admission.policies import GroupBy, Unique
from ami.main.models import BulkDeletion, Deployment, SourceImageCollection
from ami.main.services import (
    bulk_deletion,
    capture_sets,
    counts,
    detection_projects,
    float_conversion,
    public_urls,
    recounts,
    sessions,
    stale_marks,
    station_sync,
)
from ami.queues import named_leases, old_rows
from ami.queues.publish import publish_successor, publish_task
from ami.queues.slices import Slice

logger = get_task_logger(__name__)

#: Clicks of one project do not hold up those of another; calls that come while one runs become one more run.
FAIR: dict[str, Any] = {"triggered_by": "people (admin)", "fair_by": "project_id", "ignore_result": True}

#: A tick that comes while the last one waits or runs is dropped.
ALONE: dict[str, Any] = {"triggered_by": "beat", "unique": Unique(), "ignore_result": True}

#: Where a job groups the station's captures already, its call comes back after so long.
HELD_SECONDS = 15.0

#: Only a deadlock or a lost database connection is retried; other errors are faults.
RETRIES: dict[str, Any] = {
    "autoretry_for": (OperationalError, InterfaceError),
    "retry_backoff": True,
    "max_retries": 5,
}


@shared_task(
    name="ami.main.tasks.refresh_event_calculated_fields",
    unique=Unique(by=("event_id", "project_id"), on_conflict="reschedule_once"),
    **FAIR,
    **RETRIES,
)
def refresh_event_calculated_fields(event_id: int, project_id: int | None = None) -> None:  # noqa: ARG001 - its turn
    counts.refresh("event", event_id)


@shared_task(
    name="ami.main.tasks.refresh_deployment_calculated_fields",
    unique=Unique(by=("deployment_id", "project_id"), on_conflict="reschedule_once"),
    **FAIR,
    **RETRIES,
)
def refresh_deployment_calculated_fields(
    deployment_id: int,
    project_id: int | None = None,  # noqa: ARG001 - its turn
) -> None:
    counts.refresh("deployment", deployment_id)


@shared_task(
    bind=True,
    name="ami.main.tasks.refresh_project_calculated_fields",
    unique=Unique(by=("project_id",), on_conflict="reschedule_once"),
    **FAIR,
    **RETRIES,
)
def refresh_project_calculated_fields(
    self: Task,
    project_id: int,
    after: Sequence[int] = (0, 0),
    marked: bool = False,  # noqa: ARG001 - of an earlier version
) -> None:
    """Recount all events and stations of a project, in slices."""
    if left := recounts.recount_project(project_id, Slice(self), after):
        publish_successor(self, project_id=project_id, after=left)


@shared_task(
    bind=True,
    name="ami.main.tasks.update_counts",
    triggered_by="what changes captures, occurrences, sessions or projects",
    group_by=GroupBy(by=("kind",), seconds=settings.ANTENNA_COUNTS_SECONDS, merge={"pks": "set"}, halves=True),
    ignore_result=True,
    **RETRIES,
)
def update_counts(self: Task, kind: str, pks: Sequence[int]) -> None:
    """Recount objects that were marked stale, each once for all its marks, in slices."""
    if left := recounts.recount(kind, pks, Slice(self)):
        publish_successor(self, kind=kind, pks=left)


@shared_task(bind=True, name="ami.main.tasks.update_stale_counts", **ALONE, **RETRIES)
def update_stale_counts(self: Task) -> bool:
    """Hand over marks of an earlier version and fill copied columns; the next tick continues. Whether all is done."""
    turn = Slice(self)
    stale_marks.hand_over()
    return detection_projects.fill(turn)


@shared_task(bind=True, name="ami.main.tasks.update_float_lists", **ALONE, **RETRIES)
def update_float_lists(self: Task) -> bool | None:
    """Convert scores and logits that an earlier version wrote as JSON, in slices; the next tick continues.

    Returns whether all are converted; None when another worker holds the lease.
    """
    lease = "update_float_lists"
    with named_leases.held(lease) as holder:
        return None if holder is None else float_conversion.convert(lease, holder, Slice(self))


@shared_task(bind=True, name="ami.main.tasks.purge_old_rows", **ALONE, **RETRIES)
def purge_old_rows(self: Task) -> dict[str, int]:
    """Delete rows that are older than their table keeps them, in slices; return how many of each model."""
    deleted, is_done = old_rows.purge(Slice(self).over)
    if not is_done:
        publish_successor(self)
    return deleted


@shared_task(
    bind=True,
    name="ami.main.tasks.update_public_urls",
    unique=Unique(by=("deployment_id", "project_id"), on_conflict="reschedule_once"),
    **FAIR,
    **RETRIES,
)
def update_public_urls(self: Task, deployment_id: int, base_url: str, project_id: int | None = None) -> None:
    """Set the public base URL of a station's captures, in slices; the last of several URLs wins."""
    if not public_urls.update_public_urls(deployment_id, base_url, Slice(self)):
        publish_successor(self, deployment_id=deployment_id, base_url=base_url, project_id=project_id)


@shared_task(
    bind=True,
    name="ami.main.tasks.regroup_events",
    unique=Unique(by=("deployment_id", "project_id"), on_conflict="reschedule_once"),
    **FAIR,
    **RETRIES,
)
def regroup_events(self: Task, deployment_id: int, marked: bool = False, project_id: int | None = None) -> str:
    """Group a station's captures into events, in slices; a call that comes meanwhile groups them once more."""
    outcome = sessions.regroup(deployment_id, Slice(self), begins=not marked)
    if outcome is sessions.Outcome.MORE:
        publish_successor(self, deployment_id=deployment_id, marked=True, project_id=project_id)
    elif outcome is sessions.Outcome.HELD:
        publish_task(self, deployment_id=deployment_id, project_id=project_id, countdown=HELD_SECONDS)
    return outcome.value


@shared_task(
    bind=True,
    name="ami.main.tasks.populate_collection",
    unique=Unique(by=("collection_id", "project_id"), on_conflict="reschedule_once"),
    **FAIR,
    **RETRIES,
)
def populate_collection(self: Task, collection_id: int, project_id: int | None = None) -> None:
    collection = SourceImageCollection.objects.filter(pk=collection_id).first()
    if collection is not None and not capture_sets.populate(collection, Slice(self)):
        publish_successor(self, collection_id=collection_id, project_id=project_id)


@shared_task(
    bind=True,
    name="ami.main.tasks.bulk_delete",
    unique=Unique(by=("deletion_id", "project_id")),
    **FAIR,
    **RETRIES,
)
def bulk_delete(self: Task, deletion_id: int, project_id: int | None = None) -> None:
    """Delete the rows of a `BulkDeletion`, in slices."""
    deletion = BulkDeletion.objects.filter(pk=deletion_id).first()
    if deletion is not None and not bulk_deletion.advance_deletion(deletion, Slice(self)):
        publish_successor(self, deletion_id=deletion_id, project_id=project_id)


@shared_task(
    bind=True,
    name="ami.main.tasks.sync_source_images",
    unique=Unique(by=("deployment_id", "project_id")),
    **FAIR,
    **RETRIES,
)
def sync_source_images(
    self: Task, deployment_id: int, state: dict[str, Any] | None = None, project_id: int | None = None
) -> dict[str, Any] | None:
    """Sync a station's captures with its storage source, in slices; None if the station was deleted.

    A call that comes while another one of the station waits or runs is dropped.
    """
    station = Deployment.objects.select_related("data_source", "project").filter(pk=deployment_id).first()
    if station is None:
        return None
    reached = station_sync.sync(station, station_sync.SyncState(**state or {}), Slice(self))
    if not reached.finished:
        publish_successor(self, deployment_id=deployment_id, state=reached.as_dict(), project_id=project_id)
        return reached.as_dict()
    for level, line in reached.lines():
        logger.log(logging.getLevelName(level), "%s", line, extra={"deployment": deployment_id})
    return reached.as_dict()
