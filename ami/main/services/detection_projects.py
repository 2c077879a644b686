"""Fills the project of detections that are older than the column, in steps."""

from django.db.models import OuterRef, Subquery

from ami.main.models.captures import SourceImage
from ami.main.models.occurrences import Detection
from ami.queues.slices import Slice

STEP = 5000


def complete() -> bool:
    """Whether every detection has its project."""
    return not Detection.objects.filter(project=None).exists()


def fill(turn: Slice) -> bool:
    """Fill detections until the slice is over; return whether every detection has its project."""
    project = SourceImage.objects.filter(pk=OuterRef("source_image_id")).values("project_id")
    unfilled = Detection.objects.filter(project=None).order_by("pk").values_list("pk", flat=True)
    while keys := list(unfilled[:STEP]):
        Detection.objects.filter(pk__in=keys, project=None).update(project_id=Subquery(project))
        if turn.over():
            return False
    return True
