"""The determination of an occurrence: the newest identification, else the best current classification."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from ami.main.models.occurrences import Classification, Identification, Occurrence
from ami.main.services.bulk_upsert import bulk_upsert
from ami.main.services.compiled_query import CompiledQuery
from ami.main.services.stale_marks import mark_stale_counts

Determination = tuple[int | None, float | None]


@dataclass(frozen=True, slots=True)
class Capture:
    """What is needed of a `SourceImage` to save its results; it has the time zone of its station."""

    pk: int
    timestamp: datetime | None
    project_id: int
    deployment_id: int
    event_id: int | None
    time_zone: str


#: Identifications have no score of their own.
IDENTIFICATION_SCORE = 1.0


@transaction.atomic
def determine(pks: Iterable[int]) -> int:
    """Set the determination and score of these occurrences; return how many changed. No keys change nothing.

    The newest identification that is not withdrawn wins; else the highest-scoring current classification with a taxon,
    terminal ones first. The counts of changed occurrences are marked stale.
    """
    keys = sorted(set(pks))
    occurrences = list(Occurrence.objects.select_for_update(no_key=True).filter(pk__in=keys).order_by("pk"))
    best = {**_best_classifications(keys), **_newest_identifications(keys)}
    changed = []
    for occurrence in occurrences:
        taxon_id, score = best.get(occurrence.pk, (None, None))
        if (occurrence.determination_id, occurrence.determination_score) != (taxon_id, score):
            occurrence.determination_id, occurrence.determination_score = taxon_id, score
            changed.append(occurrence)
    Occurrence.objects.bulk_update(changed, ["determination", "determination_score"], batch_size=500)
    mark_stale_counts(
        events=[occurrence.event_id for occurrence in changed],
        deployments=[occurrence.deployment_id for occurrence in changed],
    )
    return len(changed)


def save_occurrences(images: Mapping[int, Capture]) -> None:
    """Create the one occurrence of each detection, with its determination; ``images`` has the capture of each.

    Call it inside the transaction that saved the classifications. The counts of the captures' sessions and stations are
    marked stale by the caller.
    """
    if not images:
        return
    pks = sorted(images)
    best = {detection: (taxon, score) for detection, taxon, score in _scored.rows(pks)}
    bulk_upsert([_occurrence(pk, images[pk], best.get(pk, (None, None))) for pk in pks], unique_fields=["detection"])
    rows = _occurrences.rows(pks)
    if others := [pk for pk, detection, *own in rows if tuple(own) != best.get(detection, (None, None))]:
        determine(others)


def _occurrence(detection_id: int, image: Capture, determination: Determination) -> Occurrence:
    return Occurrence(
        detection_id=detection_id,
        project_id=image.project_id,
        deployment_id=image.deployment_id,
        event_id=image.event_id,
        determination_id=determination[0],
        determination_score=determination[1],
    )


@CompiledQuery
def _occurrences(detections: list[int]) -> QuerySet[Occurrence, Any]:
    """Lock the occurrences: another transaction may determine one from classifications without these."""
    rows = Occurrence.objects.select_for_update(no_key=True).filter(detection_id__in=detections).order_by("pk")
    return rows.values_list("pk", "detection_id", "determination_id", "determination_score")


@CompiledQuery
def _scored(detections: list[int]) -> QuerySet[Classification, Any]:
    """Return the classifications that can determine an occurrence, the best one of each detection last."""
    scored = Classification.objects.current().filter(
        detection_id__in=detections, taxon__isnull=False, score__isnull=False
    )
    return scored.order_by("terminal", "score", "-pk").values_list("detection_id", "taxon_id", "score")


def _newest_identifications(keys: list[int]) -> dict[int, Determination]:
    identifications = Identification.objects.filter(occurrence_id__in=keys, withdrawn=False, taxon__isnull=False)
    # Oldest first, so that the newest remains.
    rows = identifications.order_by("created_at", "pk").values_list("occurrence_id", "taxon_id")
    return {occurrence: (taxon, IDENTIFICATION_SCORE) for occurrence, taxon in rows}


def _best_classifications(keys: list[int]) -> dict[int, Determination]:
    scored = (
        Classification.objects.current()
        .filter(detection__occurrence__in=keys, taxon__isnull=False, score__isnull=False)
        .order_by("terminal", "score", "-pk")
    )
    rows = scored.values_list("detection__occurrence", "taxon_id", "score")
    return {occurrence: (taxon, score) for occurrence, taxon, score in rows}
