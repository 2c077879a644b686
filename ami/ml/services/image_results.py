"""Saves the detections of one image: upserts of detections, classifications, occurrences and the null marker."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ami.main.models import Classification, Detection, Occurrence, SourceImage
from ami.main.services.boxes import bbox_key
from ami.main.services.determinations import determine
from ami.main.services.stale_marks import mark_stale
from ami.main.services.times import station_time
from ami.ml.schemas import BoundingBox, ClassificationResponse, DetectionResponse
from ami.ml.services.name_lookup import NameLookup

CLASSIFICATION_FIELDS = ["taxon", "category_map", "score", "scores", "logits", "terminal", "timestamp", "updated_at"]

#: Limits of one statement: a row may have 29,176 scores and as many logits.
MOST_ROWS = 100
MOST_NUMBERS = 50_000

Identity = tuple[int, str]
"""A detection's detector and box."""


@dataclass(frozen=True)
class SavedImage:
    """Numbers of rows that one image has from this result."""

    detections: int
    classifications: int


def save_image(image: SourceImage, detections: Sequence[DetectionResponse], lookup: NameLookup) -> SavedImage:
    """Upsert the detections, classifications and occurrences of one image; call it inside a transaction.

    Rows are written in the order of their keys, so that two transactions on the same image wait instead of
    deadlocking. Unique constraints make concurrent saves of one result a single set of rows. The null marker ("ran and
    found nothing") is written last (incident 44). The session and the station are marked stale.
    """
    real = [detection for detection in detections if detection.bbox is not None]
    pks = _save_detections(image, real, lookup)
    classifications = _save_classifications(image, real, pks, lookup)
    _save_occurrences(image, list(pks.values()))
    mark_stale("event", [image.event_id])
    mark_stale("deployment", [image.deployment_id])
    if not pks:
        _save_null_marker(image, detections, lookup)
    return SavedImage(len(pks), classifications)


def _box(bbox: BoundingBox) -> list[float]:
    return [bbox.x1, bbox.y1, bbox.x2, bbox.y2]


def _identity(detection: DetectionResponse, lookup: NameLookup) -> Identity:
    box = _box(detection.bbox) if detection.bbox else None
    return lookup.algorithms[detection.algorithm.key].pk, bbox_key(box)


def _save_detections(
    image: SourceImage, detections: Sequence[DetectionResponse], lookup: NameLookup
) -> dict[Identity, int]:
    """Return the primary key of each distinct detection."""
    new = {
        _identity(detection, lookup): Detection(
            source_image=image,
            detection_algorithm=lookup.algorithms[detection.algorithm.key],
            bbox=_box(detection.bbox) if detection.bbox else None,
            timestamp=image.timestamp,
            detection_time=_when(detection.timestamp, image),
        )
        for detection in detections
    }
    if not new:
        return {}
    Detection.objects.bulk_create([new[key] for key in sorted(new)], ignore_conflicts=True, batch_size=500)
    rows = Detection.objects.real().filter(source_image=image, detection_algorithm__in={key[0] for key in new})
    keys = rows.values_list("detection_algorithm_id", "bbox_key", "pk")
    return {(algorithm, key): pk for algorithm, key, pk in keys if (algorithm, key) in new}


def _save_classifications(
    image: SourceImage, detections: Sequence[DetectionResponse], pks: dict[Identity, int], lookup: NameLookup
) -> int:
    """Upsert one classification per detection and algorithm, the best-scored one if a result has several."""
    by_key: dict[tuple[int, int], list[ClassificationResponse]] = defaultdict(list)
    for detection in detections:
        pk = pks[_identity(detection, lookup)]
        for classification in detection.classifications:
            by_key[pk, lookup.algorithms[classification.algorithm.key].pk].append(classification)
    # Built row by row: the scores of all rows can take a hundred times the memory of their text.
    rows = (_classification(key[0], _best(by_key[key]), image, lookup) for key in sorted(by_key))
    for batch in _batches(rows):
        Classification.objects.bulk_create(
            batch,
            update_conflicts=True,
            unique_fields=["detection", "algorithm"],
            update_fields=CLASSIFICATION_FIELDS,
        )
    return len(by_key)


def _batches(rows: Iterable[Classification]) -> Iterator[list[Classification]]:
    """Yield the rows in order, in batches of at most MOST_ROWS rows or about MOST_NUMBERS numbers."""
    batch: list[Classification] = []
    numbers = 0
    for row in rows:
        batch.append(row)
        numbers += len(row.scores) + len(row.logits)
        if len(batch) >= MOST_ROWS or numbers >= MOST_NUMBERS:
            yield batch
            batch, numbers = [], 0
    if batch:
        yield batch


def _best(classifications: list[ClassificationResponse]) -> ClassificationResponse:
    """Return the classification with the highest score; the first of equals."""
    if len(classifications) == 1:
        return classifications[0]
    return max(classifications, key=lambda classification: _score(classification, list(classification.scores)) or 0)


def _classification(
    detection_id: int, classification: ClassificationResponse, image: SourceImage, lookup: NameLookup
) -> Classification:
    algorithm = lookup.algorithms[classification.algorithm.key]
    scores = list(classification.scores)
    return Classification(
        detection_id=detection_id,
        algorithm=algorithm,
        category_map=algorithm.category_map,
        taxon_id=lookup.taxa.get(classification.classification.replace("\x00", "")),
        score=_score(classification, scores),
        scores=scores,
        logits=list(classification.logits or []),
        terminal=classification.terminal,
        timestamp=_when(classification.timestamp, image),
    )


def _score(classification: ClassificationResponse, scores: list[float]) -> float | None:
    """Return the score of the classified label, or the highest score if the result does not list that label."""
    labels = list(classification.labels or [])
    if classification.classification in labels:
        index = labels.index(classification.classification)
        if index < len(scores):
            return scores[index]
    return max(scores, default=None)


def _save_occurrences(image: SourceImage, detections: list[int]) -> None:
    """Create the one occurrence of each detection and update its determination."""
    if not detections:
        return
    Occurrence.objects.bulk_create(
        [
            Occurrence(
                detection_id=pk,
                project_id=image.project_id,
                deployment_id=image.deployment_id,
                event_id=image.event_id,
            )
            for pk in sorted(detections)
        ],
        ignore_conflicts=True,
        batch_size=500,
    )
    determine(Occurrence.objects.filter(detection__in=detections).values_list("pk", flat=True))


def _save_null_marker(image: SourceImage, detections: Sequence[DetectionResponse], lookup: NameLookup) -> None:
    algorithm = lookup.algorithms[detections[0].algorithm.key] if detections else lookup.detector
    detected_at = _when(detections[0].timestamp, image) if detections else None
    marker = Detection(
        source_image=image,
        detection_algorithm=algorithm,
        bbox=None,
        timestamp=image.timestamp,
        detection_time=detected_at,
    )
    Detection.objects.bulk_create([marker], ignore_conflicts=True)


def _when(moment: datetime, image: SourceImage) -> datetime:
    return station_time(moment, image.deployment)
