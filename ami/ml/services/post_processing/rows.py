"""Writes the classifications of a post-processing run: a row of each detection, algorithm and job (decision 0045)."""

from collections.abc import Iterable

from django.db import connection
from django.db.models import QuerySet

from ami.main.models import Classification, Detection, Occurrence
from ami.main.services.bulk_upsert import bulk_upsert
from ami.main.services.determinations import determine
from ami.ml.services.classification_history import Run, make_room
from ami.ml.services.post_processing.configs import Scope

FIELDS = ["taxon", "category_map", "score", "scores", "logits", "terminal", "timestamp", "applied_to", "updated_at"]


def detections_of(config: Scope, project_id: int) -> QuerySet[Detection]:
    """Return the detections with a box that a configuration names, in the order of their keys."""
    found = Detection.objects.real().filter(source_image__project=project_id).order_by("pk")
    if config.occurrence_id is not None:
        return found.filter(occurrence=config.occurrence_id)
    return found.filter(source_image__collections=config.source_image_collection_id)


def lock(detections: Iterable[int]) -> None:
    """Lock detections in the order of their keys, as results that are saved lock them; SQLite locks no rows."""
    if connection.features.has_select_for_update:
        rows = Detection.objects.filter(pk__in=list(detections)).order_by("pk")
        list(rows.select_for_update(no_key=True).values_list("pk"))


def write(rows: Iterable[Classification], run: Run) -> int:
    """Write rows of one algorithm each that this run has not written; return how many. Detections are locked."""
    made = {(row.detection_id, row.algorithm_id): row for row in rows}
    new = []
    for key, is_current in sorted(make_room(made, run).items()):
        row = made[key]
        row.job_id, row.is_current = run.job_id, is_current
        new.append(row)
    if new:
        bulk_upsert(new, unique_fields=["detection", "algorithm", "job"], update_fields=FIELDS)
    return len(new)


def withdraw(detections: Iterable[int], algorithm_id: int, run: Run) -> int:
    """Let older rows of the algorithm count no longer; return how many."""
    rows = Classification.objects.current().filter(detection__in=list(detections), algorithm=algorithm_id)
    return rows.exclude(job_id__gt=run.job_id).exclude(job_id=run.job_id).update(is_current=False)


def determine_again(detections: Iterable[int]) -> int:
    """Determine the detections' occurrences; return how many changed."""
    return determine(Occurrence.objects.filter(detection__in=list(detections)).values_list("pk", flat=True))
