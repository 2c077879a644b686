"""Saving what a pipeline found on one image; unique constraints make two savers write one set of rows."""

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
from ami.ml.services.catalogue import Catalogue

OPINION_FIELDS = ["taxon", "category_map", "score", "scores", "logits", "terminal", "timestamp", "updated_at"]

#: What one statement takes: a row may have 29,176 scores and as many logits.
MOST_ROWS = 100
MOST_NUMBERS = 50_000

Identity = tuple[int, str]
"""A detection's detector and box."""


@dataclass(frozen=True)
class SavedImage:
    """How much one image has from this result."""

    detections: int
    classifications: int


def save_image(image: SourceImage, found: Sequence[DetectionResponse], catalogue: Catalogue) -> SavedImage:
    """Upsert the detections, classifications and occurrences of one image; call it inside a transaction.

    Rows are written in the order of their keys, so that two transactions on the same image wait instead of
    dead-locking. The null marker, "ran and found nothing", comes last (incident 44). What changed is marked stale.
    """
    real = [detection for detection in found if detection.bbox is not None]
    detections = _save_detections(image, real, catalogue)
    classifications = _save_classifications(image, real, detections, catalogue)
    _save_occurrences(image, list(detections.values()))
    mark_stale("event", [image.event_id])
    mark_stale("deployment", [image.deployment_id])
    if not detections:
        _save_null_marker(image, found, catalogue)
    return SavedImage(len(detections), classifications)


def _box(bbox: BoundingBox) -> list[float]:
    return [bbox.x1, bbox.y1, bbox.x2, bbox.y2]


def _identity(detection: DetectionResponse, catalogue: Catalogue) -> Identity:
    box = _box(detection.bbox) if detection.bbox else None
    return catalogue.algorithms[detection.algorithm.key].pk, bbox_key(box)


def _save_detections(
    image: SourceImage, found: Sequence[DetectionResponse], catalogue: Catalogue
) -> dict[Identity, int]:
    """Return the primary key of each distinct detection."""
    new = {
        _identity(detection, catalogue): Detection(
            source_image=image,
            detection_algorithm=catalogue.algorithms[detection.algorithm.key],
            bbox=_box(detection.bbox) if detection.bbox else None,
            timestamp=image.timestamp,
            detection_time=_when(detection.timestamp, image),
        )
        for detection in found
    }
    if not new:
        return {}
    Detection.objects.bulk_create([new[key] for key in sorted(new)], ignore_conflicts=True, batch_size=500)
    rows = Detection.objects.real().filter(source_image=image, detection_algorithm__in={key[0] for key in new})
    keys = rows.values_list("detection_algorithm_id", "bbox_key", "pk")
    return {(algorithm, key): pk for algorithm, key, pk in keys if (algorithm, key) in new}


def _save_classifications(
    image: SourceImage, found: Sequence[DetectionResponse], detections: dict[Identity, int], catalogue: Catalogue
) -> int:
    """Upsert one classification per detection and algorithm, the best-scored one if a result has several."""
    by_key: dict[tuple[int, int], list[ClassificationResponse]] = defaultdict(list)
    for detection in found:
        pk = detections[_identity(detection, catalogue)]
        for opinion in detection.classifications:
            by_key[pk, catalogue.algorithms[opinion.algorithm.key].pk].append(opinion)
    # Row by row: the scores of all of them may be a hundred times what their text was.
    rows = (_classification(key[0], _best(by_key[key]), image, catalogue) for key in sorted(by_key))
    for batch in _batches(rows):
        Classification.objects.bulk_create(
            batch,
            update_conflicts=True,
            unique_fields=["detection", "algorithm"],
            update_fields=OPINION_FIELDS,
        )
    return len(by_key)


def _batches(rows: Iterable[Classification]) -> Iterator[list[Classification]]:
    """Yield the rows in order, few at a time where their lists are long."""
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


def _best(opinions: list[ClassificationResponse]) -> ClassificationResponse:
    """Return the best-scored one, the first of equals."""
    if len(opinions) == 1:
        return opinions[0]
    return max(opinions, key=lambda opinion: _score(opinion, list(opinion.scores)) or 0)


def _classification(
    detection_id: int, opinion: ClassificationResponse, image: SourceImage, catalogue: Catalogue
) -> Classification:
    algorithm = catalogue.algorithms[opinion.algorithm.key]
    scores = list(opinion.scores)
    return Classification(
        detection_id=detection_id,
        algorithm=algorithm,
        category_map=algorithm.category_map,
        taxon_id=catalogue.taxa.get(opinion.classification.replace("\x00", "")),
        score=_score(opinion, scores),
        scores=scores,
        logits=list(opinion.logits or []),
        terminal=opinion.terminal,
        timestamp=_when(opinion.timestamp, image),
    )


def _score(opinion: ClassificationResponse, scores: list[float]) -> float | None:
    """Return the score of the chosen label; the highest where the result does not name its labels."""
    labels = list(opinion.labels or [])
    if opinion.classification in labels:
        index = labels.index(opinion.classification)
        if index < len(scores):
            return scores[index]
    return max(scores, default=None)


def _save_occurrences(image: SourceImage, detections: list[int]) -> None:
    """Give every detection its one occurrence, and let its classifications determine it."""
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


def _save_null_marker(image: SourceImage, found: Sequence[DetectionResponse], catalogue: Catalogue) -> None:
    algorithm = catalogue.algorithms[found[0].algorithm.key] if found else catalogue.detector
    said = _when(found[0].timestamp, image) if found else None
    marker = Detection(
        source_image=image, detection_algorithm=algorithm, bbox=None, timestamp=image.timestamp, detection_time=said
    )
    Detection.objects.bulk_create([marker], ignore_conflicts=True)


def _when(moment: datetime, image: SourceImage) -> datetime:
    return station_time(moment, image.deployment)
