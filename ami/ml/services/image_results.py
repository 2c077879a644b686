"""Saves the detections of many images at once: upserts of detections, classifications, occurrences and null markers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ami.main.models import Classification, Detection
from ami.main.services.boxes import bbox_key
from ami.main.services.bulk_upsert import bulk_upsert
from ami.main.services.determinations import Capture, save_occurrences
from ami.main.services.stale_marks import mark_stale_counts
from ami.main.services.times import station_time
from ami.ml.services.classification_history import Run, make_room
from ami.ml.services.name_lookup import NameLookup

CLASSIFICATION_FIELDS = [
    "taxon",
    "category_map",
    "score",
    *Classification.LONG_LISTS,
    "terminal",
    "timestamp",
    "updated_at",
]

#: Limits of one statement: a row may have 29,176 scores and as many logits.
MOST_ROWS = 500
MOST_NUMBERS = 100_000

Identity = tuple[int, int, str]
"""A detection's image, detector and box."""


@dataclass(frozen=True)
class ImageResult:
    """One image and its detections on the wire: `DetectionResponse` or `CheckedDetection`."""

    image: Capture
    detections: Sequence[Any]


@dataclass
class SavedImage:
    """Numbers of rows that one image has from this result."""

    detections: int = 0
    classifications: int = 0


def save_images(results: Sequence[ImageResult], lookup: NameLookup, run: Run) -> dict[int, SavedImage]:
    """Upsert the detections, classifications and occurrences of distinct images; call it inside a transaction.

    The classifications are those of this run of a job; an earlier job's stay as history.

    Each kind of rows is written by one statement, or a few, in the order of its keys, so that two transactions on the
    same images wait instead of deadlocking. Unique constraints make concurrent saves of one result a single set of
    rows. The null marker ("ran and found nothing") is written last (incident 44). Sessions and stations are marked
    stale.
    """
    saved = {each.image.pk: SavedImage() for each in results}
    found = _by_identity(results, lookup)
    pks = _save_detections(found)
    images = {pks[identity]: image for identity, (image, _) in found.items()}
    _count(saved, images, _save_classifications(found, pks, lookup, run))
    save_occurrences(images)
    mark_stale_counts(
        events=[each.image.event_id for each in results], deployments=[each.image.deployment_id for each in results]
    )
    _save_null_markers([each for each in results if not saved[each.image.pk].detections], lookup)
    return saved


def _by_identity(results: Sequence[ImageResult], lookup: NameLookup) -> dict[Identity, tuple[Capture, list[Any]]]:
    """Return the detections with a box by their identity, in its order; equal ones are one detection."""
    found: dict[Identity, tuple[Capture, list[Any]]] = {}
    for result in results:
        for detection in result.detections:
            if (bbox := detection.bbox) is not None:
                key = bbox_key((bbox.x1, bbox.y1, bbox.x2, bbox.y2))
                identity = result.image.pk, lookup.algorithms[detection.algorithm.key].pk, key
                found.setdefault(identity, (result.image, []))[1].append(detection)
    return dict(sorted(found.items(), key=lambda item: item[0]))


def _save_detections(found: dict[Identity, tuple[Capture, list[Any]]]) -> dict[Identity, int]:
    """Return the primary key of each detection; one that exists is not changed."""
    rows = []
    for (_, algorithm_id, key), (image, detections) in found.items():
        box = detections[-1].bbox
        rows.append(
            Detection(
                source_image_id=image.pk,
                project_id=image.project_id,
                detection_algorithm_id=algorithm_id,
                bbox=[box.x1, box.y1, box.x2, box.y2],
                bbox_key=key,
                timestamp=image.timestamp,
                detection_time=_when(detections[-1].timestamp, image),
            )
        )
    if rows:
        # The update of a key to itself, because a conflict that is ignored returns no primary key.
        unique = ["source_image", "detection_algorithm", "bbox_key"]
        keys = bulk_upsert(rows, unique_fields=unique, update_fields=["bbox_key"])
        return dict(zip(found, keys, strict=True))
    return {}


def _save_classifications(
    found: dict[Identity, tuple[Capture, list[Any]]], pks: dict[Identity, int], lookup: NameLookup, run: Run
) -> list[int]:
    """Save one classification per detection and algorithm, the best-scored one if a result has several.

    Return the key of the detection of each.
    """
    by_key: dict[tuple[int, int], tuple[Capture, list[Any]]] = {}
    for identity, (image, detections) in found.items():
        pk = pks[identity]
        for detection in detections:
            for each in detection.classifications:
                key = pk, lookup.algorithms[each.algorithm.key].pk
                by_key.setdefault(key, (image, []))[1].append(each)
    # The upsert of the detections has locked them, so that no other job classifies them until this one has committed.
    room = make_room(by_key, run)
    # Built row by row: the scores of all rows can take a hundred times the memory of their text.
    rows = (
        _classification(key[0], _best(by_key[key][1]), by_key[key][0], lookup, job_id=run.job_id, is_current=is_current)
        for key, is_current in room.items()
    )
    for batch in _batches(rows):
        bulk_upsert(batch, unique_fields=["detection", "algorithm", "job"], update_fields=CLASSIFICATION_FIELDS)
    return [detection for detection, _ in by_key]


def _count(saved: dict[int, SavedImage], images: dict[int, Capture], classified: list[int]) -> None:
    for image in images.values():
        saved[image.pk].detections += 1
    for detection in classified:
        saved[images[detection].pk].classifications += 1


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


def _best(classifications: list[Any]) -> Any:
    """Return the classification with the highest score; the first of equals."""
    if len(classifications) == 1:
        return classifications[0]
    return max(classifications, key=lambda classification: _score(classification, list(classification.scores)) or 0)


def _classification(
    detection_id: int, classification: Any, image: Capture, lookup: NameLookup, **columns: Any
) -> Classification:
    algorithm = lookup.algorithms[classification.algorithm.key]
    scores = _listed(classification.scores)
    return Classification(
        detection_id=detection_id,
        algorithm_id=algorithm.pk,
        category_map_id=algorithm.category_map_id,
        taxon_id=lookup.taxa.get(classification.classification.replace("\x00", "")),
        score=_score(classification, scores),
        scores=scores,
        logits=_listed(classification.logits or []),
        terminal=classification.terminal,
        timestamp=_when(classification.timestamp, image),
        **columns,
    )


def _listed(numbers: Sequence[float]) -> list[float]:
    """Return a list as it is, and a `LongList` read once."""
    return numbers if isinstance(numbers, list) else list(numbers)


def _score(classification: Any, scores: list[float]) -> float | None:
    """Return the score of the classified label, or the highest score if the result does not list that label."""
    labels = list(classification.labels or [])
    if classification.classification in labels:
        index = labels.index(classification.classification)
        if index < len(scores):
            return scores[index]
    return max(scores, default=None)


def _save_null_markers(results: Sequence[ImageResult], lookup: NameLookup) -> None:
    rows = []
    for result in sorted(results, key=lambda each: each.image.pk):
        first = result.detections[0] if result.detections else None
        algorithm = lookup.algorithms[first.algorithm.key] if first else lookup.detector
        rows.append(
            Detection(
                source_image_id=result.image.pk,
                project_id=result.image.project_id,
                detection_algorithm_id=algorithm.pk,
                bbox=None,
                timestamp=result.image.timestamp,
                detection_time=_when(first.timestamp, result.image) if first else None,
            )
        )
    if rows:
        Detection.objects.bulk_create(rows, ignore_conflicts=True, batch_size=MOST_ROWS)


def _when(moment: datetime, image: Capture) -> datetime:
    return station_time(moment, image)
