"""Counts inconsistent rows; reports them and changes nothing."""

import logging

from django.db.models import Exists, OuterRef

from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import FINAL, UNSETTLED, ImageState, JobStatus
from ami.main.models import Classification, Detection, Occurrence

logger = logging.getLogger(__name__)


def audit_data_integrity() -> dict[str, int]:
    """Return the number of rows that break each rule (incidents 41, 44 and 47); zero everywhere is healthy."""
    detections = Detection.objects.real()
    named = Classification.objects.filter(detection=OuterRef("detection"), taxon__isnull=False)
    seen = Detection.objects.filter(source_image=OuterRef("source_image"))
    of_job = JobImage.objects.filter(job=OuterRef("pk"), state__in=UNSETTLED)
    counts = {
        "detections_without_occurrence": detections.filter(occurrence=None).count(),
        "occurrences_without_determination": Occurrence.objects.filter(Exists(named), determination=None).count(),
        "processed_images_without_marker_or_detection": JobImage.objects.filter(
            ~Exists(seen), state=ImageState.PROCESSED
        ).count(),
        "detections_without_crop": detections.filter(path="").count(),
        "finished_jobs_with_unsettled_images": Job.objects.filter(
            Exists(of_job), status__in=FINAL - {JobStatus.REVOKED, JobStatus.FAILURE}
        ).count(),
        "results_that_failed": StoredResult.objects.filter(handled_at=None).exclude(error="").count(),
    }
    for name, count in counts.items():
        if count:
            logger.warning("Data integrity: %d %s.", count, name.replace("_", " "))
    return counts
