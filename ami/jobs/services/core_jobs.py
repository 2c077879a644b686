"""The job kinds populate, sync, regroup and bulk delete; thin wrappers around operations of `ami.main`."""

import time
from typing import TypeVar

from django.db.models import Model

from ami.jobs.models import Job
from ami.jobs.services.job_kinds import SliceOfWork, job_kind
from ami.main.models import BulkDeletion, Deployment, SourceImageCollection
from ami.main.services import bulk_deletion, capture_sets, sessions, station_sync

HELD_PAUSE_SECONDS = 0.5

Row = TypeVar("Row", bound=Model)


@job_kind("populate_captures_collection", stages=[("collection", "Populate capture set")])
def populate_captures_collection(job: Job, turn: SliceOfWork) -> bool:
    """Fill the job's capture set."""
    collection = _required(job, SourceImageCollection, job.source_image_collection_id, "source_image_collection")
    finished = capture_sets.populate(collection, turn)
    present = collection.images.count()
    job.save_progress(cursor={"stage": "collection"}, done=present, total=present if finished else present + 1)
    return finished


@job_kind(
    "data_storage_sync",
    stages=[("data_storage_sync", "Sync captures"), ("regroup", "Group into sessions")],
    is_long=True,
)
def data_storage_sync(job: Job, turn: SliceOfWork) -> bool:
    """Sync the job's station, then group its captures; the job ends only after both (incident 46)."""
    station = _required(job, Deployment, job.deployment_id, "deployment")
    cursor = dict(job.cursor or {})
    if cursor.get("stage") == "regroup":
        return _regroup(job, station, cursor, turn)
    state = station_sync.sync(station, station_sync.SyncState(**cursor.get("state", {})), turn)
    files = state.synced + state.failed
    if not state.finished:
        # The length of a listing is unknown until its end, so the total is one more than the files so far.
        cursor = {"stage": "data_storage_sync", "state": state.as_dict()}
        job.save_progress(cursor=cursor, done=files, total=files + 1)
        return False
    job.save_progress(cursor={"stage": "regroup", "state": state.as_dict()}, done=0, total=1)
    for level, line in state.lines():
        job.log(line, level=level)
    return False


@job_kind("regroup_events", stages=[("regroup", "Group into sessions")])
def regroup_events(job: Job, turn: SliceOfWork) -> bool:
    """Group the captures of the job's station into sessions."""
    return _regroup(job, _required(job, Deployment, job.deployment_id, "deployment"), dict(job.cursor or {}), turn)


@job_kind("bulk_delete", stages=[("delete", "Delete")], is_long=True)
def bulk_delete(job: Job, turn: SliceOfWork) -> bool:
    """Delete the rows of the `BulkDeletion` in ``params["deletion_id"]``."""
    deletion = _required(job, BulkDeletion, job.params.get("deletion_id"), "params.deletion_id")
    finished = bulk_deletion.advance_deletion(deletion, turn)
    job.save_progress(cursor={"stage": "delete"}, done=deletion.done, total=len(deletion.pks))
    return finished


def _regroup(job: Job, station: Deployment, cursor: dict[str, object], turn: SliceOfWork) -> bool:
    marked = bool(cursor.get("marked"))
    outcome = sessions.regroup(station.pk, turn, begins=not marked)
    finished = outcome is sessions.Outcome.DONE
    if outcome is sessions.Outcome.HELD:
        time.sleep(HELD_PAUSE_SECONDS)  # Without a pause the slices would spin.
    else:
        marked = True
    job.save_progress(cursor={**cursor, "stage": "regroup", "marked": marked}, done=int(finished), total=1)
    return finished


def _required(job: Job, model: type[Row], pk: object, field: str) -> Row:
    """Return the row that the job refers to.

    Raises:
        ValueError: the field is empty or the row was deleted; the job fails with this message.
    """
    row = model._default_manager.filter(pk=pk).first() if pk else None
    if row is None:
        raise ValueError(f"Job {job.pk} ({job.job_type_key}): {field} is missing or was deleted.")
    return row
