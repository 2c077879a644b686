"""Marks detections that are too small to be identified, by their share of the picture's area."""

from django.db import transaction
from django.utils import timezone

from ami.main.models import Classification, Detection, Taxon
from ami.ml.models import Algorithm
from ami.ml.services.classification_history import Run
from ami.ml.services.post_processing import rows
from ami.ml.services.post_processing.configs import SmallSizeFilter

KEY, NAME = "small_size_filter", "Small size filter"
TAXON = "Not identifiable"


@transaction.atomic
def classify(config: SmallSizeFilter, keys: list[int], project_id: int, run: Run) -> dict[str, int]:
    """Mark those of the detections that are too small; those that an earlier run marked and this one does not are free.

    A detection whose picture has no known size is left out.
    """
    rows.lock(keys)
    found = Detection.objects.filter(pk__in=keys).select_related("source_image").order_by("pk")
    small, large = [], []
    for detection in found:
        if (share := _share(detection)) is not None:
            (small if share < config.size_threshold else large).append(detection)
    algorithm, taxon = _algorithm(project_id), _taxon(project_id)
    now = timezone.now()
    made = [
        Classification(detection=each, algorithm=algorithm, taxon=taxon, score=1.0, terminal=True, timestamp=now)
        for each in small
    ]
    changed = rows.write(made, run) + rows.withdraw([each.pk for each in large], algorithm.pk, run)
    updated = rows.determine_again(keys) if changed else 0
    return {"detections_checked": len(keys), "detections_flagged": len(small), "occurrences_updated": updated}


def _share(detection: Detection) -> float | None:
    picture, box = detection.source_image, detection.bbox
    if not picture.width or not picture.height or not box:
        return None
    return abs(box[2] - box[0]) * abs(box[3] - box[1]) / (picture.width * picture.height)


def _algorithm(project_id: int) -> Algorithm:
    values = {"name": NAME, "task_type": "post_processing", "description": f"Post-processing task: {KEY}"}
    return Algorithm.objects.get_or_create(project_id=project_id, key=KEY, defaults=values)[0]


def _taxon(project_id: int) -> Taxon:
    values = {"display_name": TAXON, "rank": Taxon.Rank.UNKNOWN, "shared": False}
    taxon, _ = Taxon.objects.get_or_create(name=TAXON, defaults=values)
    taxon.projects.add(project_id)
    return taxon
