"""Occurrences as flat records: the columns of tabular exports, made from plain values."""

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from ami.exports.services.formats.related import Grouped, grouped, of_rows, values
from ami.main.models import Classification, Identification, Occurrence
from ami.main.services.file_urls import StableUrls

COLUMNS = (
    "id",
    "event_id",
    "event_name",
    "deployment_id",
    "deployment_name",
    "project_id",
    "project_name",
    "determination_id",
    "determination_name",
    "determination_score",
    "verification_status",
    "best_machine_prediction_name",
    "best_machine_prediction_algorithm",
    "best_machine_prediction_score",
    "verified_by",
    "participant_count",
    "agreed_with_algorithm",
    "agreed_with_user",
    "determination_matches_machine_prediction",
    "detections_count",
    "first_appearance",
    "last_appearance",
    "duration_seconds",
    "best_detection_url",
    "best_detection_bbox",
    "best_detection_width",
    "best_detection_height",
    "best_detection_capture_url",
)

#: What is read of an occurrence: the first ten as in ``COLUMNS``, then those of its detection and capture.
OF_OCCURRENCE = (
    "pk",
    "event_id",
    "event__group_by",
    "deployment_id",
    "deployment__name",
    "project_id",
    "project__name",
    "determination_id",
    "determination__name",
    "determination_score",
    "detection_id",
    "detection__path",
    "detection__bbox",
    "detection__source_image_id",
    "detection__source_image__timestamp",
    "detection__source_image__path",
    "detection__source_image__public_base_url",
)
OF_PREDICTION = ("detection_id", "taxon_id", "taxon__name", "algorithm__name", "score")
OF_IDENTIFICATION = (
    "occurrence_id",
    "user_id",
    "user__name",
    "agreed_with_prediction__algorithm__name",
    "agreed_with_identification__user_id",
    "agreed_with_identification__user__name",
)

NO_PREDICTION = (None, None, None, None, None)


def records(occurrences: "QuerySet[Occurrence]", limit: int) -> list[list[Any]]:
    """Return the values of ``COLUMNS`` of the first occurrences, in three queries."""
    rows = values(occurrences, OF_OCCURRENCE, limit)
    batch = of_rows(occurrences, rows)
    predictions, identifications = _predictions(batch), _identifications(batch)
    urls = StableUrls()
    return [
        _record(row, next(iter(predictions.get(row[10], ())), NO_PREDICTION), identifications.get(row[0], ()), urls)
        for row in rows
    ]


def _predictions(batch: "QuerySet[Occurrence]") -> Grouped:
    """Return each detection's predictions, the best first."""
    found = Classification.objects.current().filter(detection__in=batch.values("detection_id"), taxon__isnull=False)
    return grouped(found.order_by("-terminal", "-score", "pk").values_list(*OF_PREDICTION))


def _identifications(batch: "QuerySet[Occurrence]") -> Grouped:
    """Return each occurrence's identifications that were not withdrawn, the newest first."""
    found = Identification.objects.filter(occurrence__in=batch.values("pk"), withdrawn=False)
    return grouped(found.order_by("-created_at", "-pk").values_list(*OF_IDENTIFICATION))


def _record(
    row: tuple[Any, ...],
    best: tuple[Any, ...],
    identifications: Sequence[tuple[Any, ...]],
    urls: StableUrls,
) -> list[Any]:
    detection, path, (x1, y1, x2, y2), capture, timestamp, capture_path, public_base_url = row[10:]
    event_name = None if row[1] is None else str(row[2])
    seen_at = timestamp.isoformat() if timestamp else None
    return [
        row[0],
        row[1],
        event_name,
        *row[3:10],
        "Verified" if identifications else "Not verified",
        best[2],
        best[3],
        best[4],
        *_verification(identifications),
        best[1] is not None and best[1] == row[7],
        1,
        seen_at,
        seen_at,
        0,
        urls.crop(detection, path),
        [x1, y1, x2, y2],
        x2 - x1,
        y2 - y1,
        urls.capture(capture, capture_path, public_base_url),
    ]


def _verification(identifications: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return who verified it, how many took part, and with which algorithm or user the newest agreed."""
    if not identifications:
        return None, 0, None, None
    _, user, name, algorithm, agreed_user, agreed_name = identifications[0]
    return (
        _display_name(user, name),
        len({each[1] for each in identifications}),
        algorithm,
        _display_name(agreed_user, agreed_name),
    )


def _display_name(user: int | None, name: str | None) -> str | None:
    """Return the user's name; never the e-mail address, because an export may be published."""
    return None if user is None else name or f"user {user}"
