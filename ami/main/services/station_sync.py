"""Syncs a station's captures with the files of its storage source, in resumable batches."""

from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone

from ami.environment.deferred import deferred
from ami.main.models.captures import SourceImage
from ami.main.models.stations import Deployment, S3StorageSource
from ami.main.services import sync_report
from ami.main.services.sources import SourceFile, pictures
from ami.main.services.stale_marks import mark_stale, regroup_later
from ami.main.services.times import doubt_of, station_time
from ami.queues.slices import Slice

if TYPE_CHECKING:
    from ami.main.services import capture_times
else:
    capture_times = deferred("ami.main.services.capture_times")

BATCH = 500
UPDATED = ["timestamp", "public_base_url", "size", "last_modified", "updated_at"]


@dataclass(frozen=True)
class SyncState:
    """The progress of a listing: last path, number of files synced and skipped (`failed`), their size in bytes.

    ``skipped`` and ``doubtful`` are reports of files that are no captures, and of captures with an unlikely time.
    """

    after: str = ""
    synced: int = 0
    failed: int = 0
    total_bytes: int = 0
    finished: bool = False
    skipped: sync_report.Report = field(default_factory=dict)
    doubtful: sync_report.Report = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Return the level and the sentence of each line of the sync's log."""
        summary = f"{self.synced} captures synced, {self.failed} files skipped."
        skipped = [("INFO", line) for line in sync_report.lines(self.skipped, "Skipped,")]
        doubtful = [("WARNING", line) for line in sync_report.lines(self.doubtful, "Check the camera's clock, times")]
        return [("INFO", summary), *skipped, *doubtful]


def sync(station: Deployment, state: SyncState, turn: Slice) -> SyncState:
    """Sync the files after ``state.after`` until the slice is over; return the new state.

    One capture per (deployment, path) is inserted or updated: idempotent. A file that is no capture, that has no time
    in its name and its EXIF data, or whose name cannot be stored, is skipped and counted by reason.

    Raises:
        SourceError: the storage source cannot be listed.
    """
    files = pictures(station, state.after)
    while batch := list(islice(files, BATCH)):
        state = _save_batch(station, batch, state)
        if turn.over():
            return state
    _finish(station)
    return replace(state, finished=True)


def _save_batch(station: Deployment, batch: list[SourceFile], state: SyncState) -> SyncState:
    found = capture_times.read(station, batch)
    skipped = [(path, reason) for path, reason in found.items() if isinstance(reason, str)]
    captures = [_capture(station, file, taken) for file in batch if isinstance(taken := found[file.path], datetime)]
    with transaction.atomic():
        SourceImage.objects.bulk_create(
            captures, update_conflicts=True, unique_fields=["deployment", "path"], update_fields=UPDATED
        )
        mark_stale("deployment", [station.pk] if captures else [])
        regroup_later([station.pk] if captures else [])
    return SyncState(
        after=batch[-1].path,
        synced=state.synced + len(captures),
        failed=state.failed + len(skipped),
        total_bytes=state.total_bytes + sum(file.size for file in batch),
        skipped=sync_report.extended(state.skipped, skipped),
        doubtful=sync_report.extended(state.doubtful, _doubts(captures)),
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


def _doubts(captures: list[SourceImage]) -> list[tuple[str, str]]:
    now = timezone.now()
    doubts = ((capture.path, doubt_of(capture.timestamp, now)) for capture in captures if capture.timestamp)
    return [(path, doubt) for path, doubt in doubts if doubt]


def _finish(station: Deployment) -> None:
    now = timezone.now()
    Deployment.objects.filter(pk=station.pk).update(data_source_last_checked=now)
    S3StorageSource.objects.filter(pk=station.data_source_id).update(last_checked=now)
