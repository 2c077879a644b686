"""The format `occurrences_api_json`: a JSON array of occurrences as in the API."""

import json
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from ami.exports.services.formats.registry import Batch, register
from ami.exports.services.formats.related import Grouped, grouped, of_rows, values
from ami.main.models import Classification, Identification, Occurrence
from ami.main.services.file_urls import StableUrls

OF_OCCURRENCE = (
    "pk",
    "project_id",
    "deployment_id",
    "event_id",
    "determination_score",
    "created_at",
    "updated_at",
    "determination_id",
    "determination__name",
    "determination__rank",
    "detection_id",
    "detection__detection_algorithm__key",
    "detection__bbox",
    "detection__path",
    "detection__timestamp",
    "detection__source_image_id",
    "detection__source_image__path",
    "detection__source_image__public_base_url",
    "detection__source_image__timestamp",
    "detection__source_image__width",
    "detection__source_image__height",
)
OF_TAXON = ("taxon_id", "taxon__name", "taxon__rank")
OF_CLASSIFICATION = ("detection_id", "pk", "algorithm__key", "score", "terminal", *OF_TAXON)
OF_IDENTIFICATION = ("occurrence_id", "pk", "user__name", "withdrawn", "comment", "created_at", *OF_TAXON)


class OccurrencesJson:
    """One object per line inside one array, in UTF-8: what `OccurrenceSerializer` answers, from plain values."""

    key = "occurrences_api_json"
    name = "Occurrences (JSON)"
    extension = "json"
    content_type = "application/json"
    between = b",\n"

    def head(self) -> bytes:
        return b"[\n"

    def tail(self) -> bytes:
        return b"\n]\n"

    def batch(self, occurrences: "QuerySet[Occurrence]", limit: int) -> Batch:
        """Return one object per occurrence."""
        rows = values(occurrences, OF_OCCURRENCE, limit)
        batch = of_rows(occurrences, rows)
        classifications, identifications = _classifications(batch), _identifications(batch)
        urls, encode = StableUrls(), json.JSONEncoder().encode
        lines = [
            encode(_occurrence(row, classifications.get(row[10], []), identifications.get(row[0], []), urls))
            for row in rows
        ]
        return Batch(self.between.decode().join(lines).encode(), len(rows), rows[-1][0] if rows else 0)


def _classifications(batch: "QuerySet[Occurrence]") -> Grouped:
    found = Classification.objects.current().filter(detection__in=batch.values("detection_id"))
    return grouped(found.order_by("-terminal", "-score", "pk").values_list(*OF_CLASSIFICATION))


def _identifications(batch: "QuerySet[Occurrence]") -> Grouped:
    found = Identification.objects.filter(occurrence__in=batch.values("pk"))
    return grouped(found.order_by("-created_at", "-pk").values_list(*OF_IDENTIFICATION))


def _occurrence(
    row: tuple[Any, ...],
    classifications: list[tuple[Any, ...]],
    identifications: list[tuple[Any, ...]],
    urls: StableUrls,
) -> dict[str, Any]:
    pk, project, deployment, event, score, created_at, updated_at = row[:7]
    return {
        "id": pk,
        "project": project,
        "deployment": deployment,
        "event": event,
        "determination": _taxon(*row[7:10]),
        "determination_score": score,
        "detection": _detection(row[10:], classifications, urls),
        "identifications": [_identification(*each[1:]) for each in identifications],
        "created_at": _time(created_at),
        "updated_at": _time(updated_at),
    }


def _detection(row: tuple[Any, ...], classifications: list[tuple[Any, ...]], urls: StableUrls) -> dict[str, Any]:
    pk, algorithm, bbox, path, timestamp, capture, capture_path, base_url, captured_at, width, height = row
    return {
        "id": pk,
        "source_image": {
            "id": capture,
            "url": urls.capture(capture, capture_path, base_url),
            "timestamp": _time(captured_at),
            "width": width,
            "height": height,
        },
        "algorithm": algorithm,
        "bbox": bbox,
        "url": urls.crop(pk, path),
        "timestamp": _time(timestamp),
        "classifications": [_classification(*each[1:]) for each in classifications],
    }


def _classification(pk: int, algorithm: str, score: float | None, terminal: bool, *taxon: Any) -> dict[str, Any]:
    return {"id": pk, "algorithm": algorithm, "taxon": _taxon(*taxon), "score": score, "terminal": terminal}


def _identification(
    pk: int, user: str | None, withdrawn: bool, comment: str, created_at: datetime, *taxon: Any
) -> dict[str, Any]:
    return {
        "id": pk,
        "user": user,
        "taxon": _taxon(*taxon),
        "withdrawn": withdrawn,
        "comment": comment,
        "created_at": _time(created_at),
    }


def _taxon(pk: int | None, name: str | None, rank: str | None) -> dict[str, Any] | None:
    return None if pk is None else {"id": pk, "name": name, "rank": rank}


def _time(moment: datetime | None) -> str | None:
    """Return a moment as the API writes it: UTC is ``Z``."""
    if moment is None:
        return None
    text = moment.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


register(OccurrencesJson())
