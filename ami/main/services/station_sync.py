"""Syncs a station's captures with the files of its storage source, in resumable batches."""

from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice

from django.db import transaction
from django.utils import timezone

from ami.main.models.captures import SourceImage
from ami.main.models.stations import Deployment, S3StorageSource
from ami.main.services.capture_times import times_of
from ami.main.services.paths import problem_of
from ami.main.services.sources import SourceFile, pictures
from ami.main.services.stale_marks import mark_stale, regroup_later
from ami.main.services.times import station_time
from ami.queues.slices import Slice

BATCH = 500
UPDATED = ["timestamp", "public_base_url", "size", "last_modified", "updated_at"]


@dataclass(frozen=True)
class SyncState:
    """The progress of a listing: last path, number of files synced and failed, their size in bytes."""

    after: str = ""
    synced: int = 0
    failed: int = 0
    total_bytes: int = 0
    finished: bool = False

    def as_dict(self) -> dict[str, str | int | bool]:
        return asdict(self)


def sync(station: Deployment, state: SyncState, turn: Slice) -> SyncState:
    """Sync the files after ``state.after`` until the slice is over; return the new state.

    One capture per (deployment, path) is inserted or updated: idempotent. A file without a time in its name and its
    EXIF data, or with a name that cannot be stored, is counted as failed and skipped.

    Raises:
        SourceError: the storage source cannot be listed.
    """
    files = pictures(station, state.after)
    while batch := list(islice(files, BATCH)):
        state = _save_batch(station, batch, state)
        if turn.over():
            return state
    _finish(station)
    return SyncState(**{**asdict(state), "finished": True})


def _save_batch(station: Deployment, batch: list[SourceFile], state: SyncState) -> SyncState:
    storable = [file for file in batch if _storable(file.path)]
    times = times_of(station, storable)
    captures = [_capture(station, file, times[file.path]) for file in storable if file.path in times]
    with transaction.atomic():
        SourceImage.objects.bulk_create(
            captures, update_conflicts=True, unique_fields=["deployment", "path"], update_fields=UPDATED
        )
        mark_stale("deployment", [station.pk] if captures else [])
        regroup_later([station.pk] if captures else [])
    return SyncState(
        after=batch[-1].path,
        synced=state.synced + len(captures),
        failed=state.failed + len(batch) - len(captures),
        total_bytes=state.total_bytes + sum(file.size for file in batch),
    )


def _capture(station: Deployment, file: SourceFile, taken_at: datetime) -> SourceImage:
    return SourceImage(
        project_id=station.project_id,
        deployment=station,
        path=file.path,
        public_base_url=station.data_source.public_base_url if station.data_source else "",
        timestamp=station_time(taken_at, station),
        size=file.size,
        last_modified=file.last_modified,
    )


def _storable(path: str) -> bool:
    """Whether the path fits its column, is valid UTF-8 and is a plain relative path."""
    return len(path) <= 1024 and not problem_of(path)


def _finish(station: Deployment) -> None:
    now = timezone.now()
    Deployment.objects.filter(pk=station.pk).update(data_source_last_checked=now)
    S3StorageSource.objects.filter(pk=station.data_source_id).update(last_checked=now)
