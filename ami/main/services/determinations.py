"""The determination of an occurrence: the newest identification, else the best classification."""

from collections.abc import Iterable

from django.db import transaction

from ami.main.models.occurrences import Classification, Identification, Occurrence
from ami.main.services.stale_marks import mark_stale

Determination = tuple[int | None, float | None]

#: Identifications have no score of their own.
IDENTIFICATION_SCORE = 1.0


@transaction.atomic
def determine(pks: Iterable[int]) -> int:
    """Set the determination and score of these occurrences; return how many changed. No keys change nothing.

    The newest identification that is not withdrawn wins; else the highest-scoring classification with a taxon,
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
    mark_stale("event", [occurrence.event_id for occurrence in changed])
    mark_stale("deployment", [occurrence.deployment_id for occurrence in changed])
    return len(changed)


def _newest_identifications(keys: list[int]) -> dict[int, Determination]:
    identifications = Identification.objects.filter(occurrence_id__in=keys, withdrawn=False, taxon__isnull=False)
    # Oldest first, so that the newest remains.
    rows = identifications.order_by("created_at", "pk").values_list("occurrence_id", "taxon_id")
    return {occurrence: (taxon, IDENTIFICATION_SCORE) for occurrence, taxon in rows}


def _best_classifications(keys: list[int]) -> dict[int, Determination]:
    scored = Classification.objects.filter(
        detection__occurrence__in=keys, taxon__isnull=False, score__isnull=False
    ).order_by("terminal", "score", "-pk")
    rows = scored.values_list("detection__occurrence", "taxon_id", "score")
    return {occurrence: (taxon, score) for occurrence, taxon, score in rows}
