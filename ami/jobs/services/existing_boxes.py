"""The boxes that images have already, which a push job sends along so that its service classifies them again."""

from collections import defaultdict
from collections.abc import Sequence

from ami.jobs.models import Job, JobImage
from ami.jobs.services.processed_images import sends_detections
from ami.main.models import Detection
from ami.ml.schemas import AlgorithmReference, BoundingBox, DetectionRequest, SourceImageRequest

#: A box: x1, y1, x2, y2, and the name and key of its detector.
Box = tuple[list[float], str, str]
Boxes = dict[int, list[Box]]


def with_boxes(job: Job, batch: Sequence[JobImage]) -> list[tuple[list[JobImage], Boxes]]:
    """Return the batch in at most two parts: images whose boxes are sent along, by image, and images that have none.

    They are separate requests: services that are given boxes look for no others, in any image of the request.
    """
    boxes = _boxes([row.source_image_id for row in batch]) if sends_detections(job) else {}
    given = [row for row in batch if row.source_image_id in boxes]
    others = [row for row in batch if row.source_image_id not in boxes]
    return [(part, found) for part, found in ((given, boxes), (others, {})) if part]


def requests_for(pictures: Sequence[SourceImageRequest], boxes: Boxes) -> list[DetectionRequest] | None:
    """Return the boxes of the pictures as they are sent, each with its own detector; None without boxes."""
    return [
        DetectionRequest(
            source_image=picture,
            bbox=BoundingBox(x1=x1, y1=y1, x2=x2, y2=y2),
            algorithm=AlgorithmReference(name=name, key=key),
        )
        for picture in pictures
        for (x1, y1, x2, y2), name, key in boxes.get(int(picture.id), ())
    ] or None


def _boxes(image_ids: Sequence[int]) -> Boxes:
    found: Boxes = defaultdict(list)
    rows = Detection.objects.real().filter(source_image_id__in=image_ids).order_by("source_image_id", "pk")
    columns = ("source_image_id", "bbox", "detection_algorithm__name", "detection_algorithm__key")
    for image, *box in rows.values_list(*columns):
        found[image].append((box[0], box[1], box[2]))
    return dict(found)
