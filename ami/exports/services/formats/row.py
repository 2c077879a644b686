"""One occurrence as a flat record: the columns of tabular exports."""

from typing import Any

from django.db.models import Prefetch, QuerySet

from ami.main.models import Classification, Identification, Occurrence
from ami.main.services import file_urls

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


def with_related(occurrences: "QuerySet[Occurrence]") -> "QuerySet[Occurrence]":
    """Prefetch everything that `record` reads, in three queries."""
    predictions = Classification.objects.select_related("taxon", "algorithm").filter(taxon__isnull=False)
    predictions = predictions.defer("scores", "logits").order_by("-terminal", "-score", "pk")
    identifications = Identification.objects.select_related(
        "user", "agreed_with_prediction__algorithm", "agreed_with_identification__user"
    )
    identifications = identifications.defer("agreed_with_prediction__scores", "agreed_with_prediction__logits")
    return occurrences.select_related(
        "event", "deployment", "project", "determination", "detection__source_image"
    ).prefetch_related(
        Prefetch("detection__classifications", predictions, to_attr="predictions"),
        Prefetch(
            "identifications",
            identifications.filter(withdrawn=False).order_by("-created_at", "-pk"),
            to_attr="current_identifications",
        ),
    )


def record(occurrence: Occurrence) -> dict[str, Any]:
    """Return the occurrence as ``COLUMNS`` -> value; loaded through `with_related`."""
    return {**_place(occurrence), **_determination(occurrence), **_verification(occurrence), **_appearance(occurrence)}


def _place(occurrence: Occurrence) -> dict[str, Any]:
    event = occurrence.event
    return {
        "id": occurrence.pk,
        "event_id": occurrence.event_id,
        "event_name": str(event) if event else None,
        "deployment_id": occurrence.deployment_id,
        "deployment_name": occurrence.deployment.name,
        "project_id": occurrence.project_id,
        "project_name": occurrence.project.name,
    }


def _determination(occurrence: Occurrence) -> dict[str, Any]:
    taxon, best = occurrence.determination, _best_prediction(occurrence)
    return {
        "determination_id": occurrence.determination_id,
        "determination_name": taxon.name if taxon else None,
        "determination_score": occurrence.determination_score,
        "best_machine_prediction_name": best.taxon.name if best else None,
        "best_machine_prediction_algorithm": best.algorithm.name if best else None,
        "best_machine_prediction_score": best.score if best else None,
        "determination_matches_machine_prediction": bool(best and best.taxon_id == occurrence.determination_id),
    }


def _best_prediction(occurrence: Occurrence) -> Any:
    return next(iter(occurrence.detection.predictions), None)


def _verification(occurrence: Occurrence) -> dict[str, Any]:
    identifications: list[Identification] = occurrence.current_identifications  # type: ignore[attr-defined]
    newest = identifications[0] if identifications else None
    prediction = newest.agreed_with_prediction if newest else None
    agreed = newest.agreed_with_identification if newest else None
    return {
        "verification_status": "Verified" if newest else "Not verified",
        "verified_by": _display_name(newest.user) if newest else None,
        "participant_count": len({identification.user_id for identification in identifications}),
        "agreed_with_algorithm": prediction.algorithm.name if prediction else None,
        "agreed_with_user": _display_name(agreed.user) if agreed else None,
    }


def _display_name(user: Any) -> str | None:
    """Return the user's name; never the e-mail address, because an export may be published."""
    if user is None:
        return None
    return user.name or f"user {user.pk}"


def _appearance(occurrence: Occurrence) -> dict[str, Any]:
    detection, capture = occurrence.detection, occurrence.detection.source_image
    x1, y1, x2, y2 = detection.bbox
    seen_at = capture.timestamp.isoformat() if capture.timestamp else None
    return {
        "detections_count": 1,
        "first_appearance": seen_at,
        "last_appearance": seen_at,
        "duration_seconds": 0,
        "best_detection_url": file_urls.crop_address(detection),
        "best_detection_bbox": [x1, y1, x2, y2],
        "best_detection_width": x2 - x1,
        "best_detection_height": y2 - y1,
        "best_detection_capture_url": file_urls.capture_address(capture),
    }
