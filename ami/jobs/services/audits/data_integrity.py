"""Counts inconsistent rows, some of each table per run; reports them and changes nothing."""

import logging
import time
from typing import Any

from django.db.models import Exists, Max, OuterRef, QuerySet
from django.utils import timezone

from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import FINAL, UNSETTLED, ImageState, JobStatus
from ami.main.models import Classification, Detection, Occurrence
from ami.telemetry.models import AuditPosition

logger = logging.getLogger(__name__)

#: A table is looked at in this many runs at most: three days at one run an hour.
RUNS_PER_PASS = 72
#: So many keys of a table are looked at per run at least, so that small tables are looked at in each.
LEAST_KEYS = 50_000
KEYS_PER_STATEMENT = 10_000
#: A run ends after this time, and the next one continues.
RUN_SECONDS = 60.0


def audit_data_integrity() -> dict[str, int]:
    """Return how many rows this run found that break each rule (incidents 41, 44 and 47); zero everywhere is healthy.

    A run continues where the last one ended; `AuditPosition` has what the last whole pass found.
    """
    ends_at = time.monotonic() + RUN_SECONDS
    counts = {name: _look(name, broken, ends_at) for name, broken in _rules().items()}
    for name, count in counts.items():
        if count:
            logger.warning("Data integrity: %d %s.", count, name.replace("_", " "))
    return counts


def _rules() -> dict[str, QuerySet[Any]]:
    """Return the rows that break each rule."""
    detections = Detection.objects.real()
    named = Classification.objects.current().filter(detection=OuterRef("detection"), taxon__isnull=False)
    seen = Detection.objects.filter(source_image=OuterRef("source_image"))
    of_job = JobImage.objects.filter(job=OuterRef("pk"), state__in=UNSETTLED)
    return {
        "detections_without_occurrence": detections.filter(occurrence=None),
        "occurrences_without_determination": Occurrence.objects.filter(Exists(named), determination=None),
        "processed_images_without_marker_or_detection": JobImage.objects.filter(
            ~Exists(seen), state=ImageState.PROCESSED
        ),
        "detections_without_crop": detections.filter(path=""),
        "finished_jobs_with_unsettled_images": Job.objects.filter(
            Exists(of_job), status__in=FINAL - {JobStatus.REVOKED, JobStatus.FAILURE}
        ),
        "results_that_failed": StoredResult.objects.filter(handled_at=None).exclude(error=""),
    }


def _look(name: str, broken: QuerySet[Any], ends_at: float) -> int:
    """Count the broken rows among the next keys of a table, and store how far that got after each statement."""
    position, _ = AuditPosition.objects.get_or_create(name=name)
    last = broken.model._default_manager.aggregate(last=Max("pk"))["last"] or 0
    until = min(last, position.last_key + max(LEAST_KEYS, -(-last // RUNS_PER_PASS)))
    found = 0
    while position.last_key < until and time.monotonic() < ends_at:
        upto = min(until, position.last_key + KEYS_PER_STATEMENT)
        count = broken.filter(pk__gt=position.last_key, pk__lte=upto).count()
        found += count
        position.last_key, position.found = upto, position.found + count
        position.save()
    if position.last_key >= last:
        position.last_key, position.found, position.found_by_last_pass = 0, 0, position.found
        position.pass_ended_at = timezone.now()
        position.save()
    return found
