"""The detections of a capture as they are drawn on it: box, label and score."""

from collections.abc import Sequence
from dataclasses import dataclass

from ami.main.models import Classification, Detection, SourceImage

#: A capture with more detections shows the first of them.
MOST_BOXES = 500


@dataclass(frozen=True)
class Box:
    """One detection in pixels of the capture; ``score`` is 0 to 1, None without a classification."""

    detection: Detection
    x: float
    y: float
    width: float
    height: float
    label: str
    score: float | None

    @property
    def text(self) -> str:
        """The label with the score in percent."""
        return self.label if self.score is None else f"{self.label} {self.percent}"

    @property
    def percent(self) -> str:
        return "" if self.score is None else f"{self.score:.0%}"


def boxes_of(capture: SourceImage) -> list[Box]:
    """Return the boxes of a capture, each with its best current classification; two statements."""
    return boxes_of_all([capture])[capture.pk]


def boxes_of_all(captures: Sequence[SourceImage]) -> dict[int, list[Box]]:
    """Return the boxes of each capture by its key, together at most `MOST_BOXES`; two statements."""
    rows = Detection.objects.real().filter(source_image__in=captures).defer("similarity_vector")
    detections = list(rows.order_by("pk")[:MOST_BOXES])
    best = _best([detection.pk for detection in detections])
    found: dict[int, list[Box]] = {capture.pk: [] for capture in captures}
    for detection in detections:
        if box := _box(detection, best.get(detection.pk)):
            found[detection.source_image_id].append(box)
    return found


def _best(detections: list[int]) -> dict[int, Classification]:
    """Return the classification that counts for each detection: a final one before others, then the highest score."""
    rows = (
        Classification.objects.current()
        .filter(detection__in=detections)
        .select_related("taxon")
        .defer(*Classification.LONG_LISTS)
        .order_by("terminal", "score", "-pk")
    )
    return {row.detection_id: row for row in rows}


def _box(detection: Detection, found: Classification | None) -> Box | None:
    try:
        left, top, right, bottom = (float(number) for number in detection.bbox)
    except (TypeError, ValueError):
        return None
    label = str(found.taxon) if found and found.taxon else "not named"
    size = max(0.0, right - left), max(0.0, bottom - top)
    return Box(detection, left, top, *size, label, found.score if found else None)
