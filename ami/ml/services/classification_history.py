"""Keeps what earlier jobs classified: a row of each detection, algorithm and job; the newest job's is current."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from ami.main.models import Classification
from ami.main.services.compiled_query import CompiledQuery

Key = tuple[int, int]
"""A classification's detection and algorithm."""


@dataclass(frozen=True)
class Run:
    """The run of a job that made results: the job's key, and when this run of it began."""

    job_id: int
    started_at: datetime | None = None


def make_room(keys: Iterable[Key], run: Run) -> dict[Key, bool]:
    """Return those of the keys that this run may write, and whether their rows are current; replace older current rows.

    A row that the run has written already is absent: a redelivered result changes nothing. One that an earlier run of
    the same job wrote is there: its values are replaced. A newer job's row, by its key, stays current, and one without
    a job is older than any. Call it in the transaction that writes the rows, with the detections locked.
    """
    wanted = sorted(set(keys))
    current: dict[Key, tuple[int, int | None]] = {}
    own: dict[Key, tuple[bool, datetime]] = {}
    for pk, detection, algorithm, job_id, is_current, updated_at in _known.rows(_detections(wanted), run.job_id):
        if job_id == run.job_id:
            own[detection, algorithm] = is_current, updated_at
        else:
            current[detection, algorithm] = pk, job_id
    room: dict[Key, bool] = {}
    replaced: list[int] = []
    for key in wanted:
        if key in own:
            is_current, updated_at = own[key]
            if run.started_at is not None and updated_at < run.started_at:
                room[key] = is_current
            continue
        pk, job_id = current.get(key, (None, None))
        room[key] = job_id is None or job_id < run.job_id
        if room[key] and pk is not None:
            replaced.append(pk)
    if replaced:
        Classification.objects.filter(pk__in=replaced).update(is_current=False)
    return room


def _detections(keys: Iterable[Key]) -> list[int]:
    return sorted({detection for detection, _ in keys})


@CompiledQuery
def _known(detections: list[int], job_id: int) -> QuerySet[Classification, Any]:
    """Return the current rows of the detections, and the job's own."""
    rows = Classification.objects.filter(Q(is_current=True) | Q(job_id=job_id), detection_id__in=detections)
    columns = ("pk", "detection_id", "algorithm_id", "job_id", "is_current", "updated_at")
    return rows.order_by().values_list(*columns)
