"""The captures that a job processed last, for its page."""

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState
from ami.main.models import SourceImage
from ami.main.services.boxed_captures import Box, boxes_of_all

#: So many are shown, of so many that were processed last.
MOST, LOOKED_AT = 8, 40


def recent_captures(job: Job) -> list[tuple[SourceImage, list[Box]]]:
    """Return captures with their boxes, the last processed first; four statements.

    Those without detections are left out, and those whose pictures are published elsewhere: they have no thumbnail.
    """
    rows = JobImage.objects.filter(job=job, state=ImageState.PROCESSED, detections_count__gt=0)
    keys = list(rows.order_by("-settled_at", "-pk").values_list("source_image_id", flat=True)[:LOOKED_AT])
    known = SourceImage.objects.filter(pk__in=keys, public_base_url="", width__gt=0, height__gt=0).in_bulk()
    captures = [known[key] for key in keys if key in known][:MOST]
    boxes = boxes_of_all(captures) if captures else {}
    return [(capture, boxes[capture.pk]) for capture in captures]
