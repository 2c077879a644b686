"""Scores classifications again as if the classifier knew only the taxa of a list."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from ami.main.models import Classification, TaxaList
from ami.ml.models import Algorithm
from ami.ml.services.classification_history import Run
from ami.ml.services.post_processing import rows
from ami.ml.services.post_processing.configs import ClassMasking, ConfigRefused

#: Of all probability: a mask that takes less changes nothing.
NOTHING = 1e-9


class Mask(NamedTuple):
    """The classes of a classifier that stay: index -> key of the taxon; and the algorithm of the masked rows."""

    source: Algorithm
    result: Algorithm
    taxa: dict[int, int]
    classes: int


@transaction.atomic
def classify(config: ClassMasking, keys: list[int], project_id: int, run: Run) -> dict[str, int]:
    """Mask the classifications of these detections; one that the mask does not change stays as it is.

    The masked row is a further classification, ``applied_to`` the original, which is not terminal any more.

    Raises:
        ConfigRefused: the list has none of the classes.
    """
    rows.lock(keys)
    mask = mask_of(config, project_id)
    made, unchanged = [], []
    sources = list(_sources(mask, keys))
    for source in sources:
        masked = masked_scores(_probabilities(source, mask.classes), mask.taxa, reweight=config.reweight)
        if masked is None:
            unchanged.append(source)
        else:
            made.append(_row(source, mask, masked))
    changed = rows.write(made, run)
    changed += rows.withdraw([source.detection_id for source in unchanged], mask.result.pk, run)
    _set_terminal([row.applied_to_id for row in made], False)
    _set_terminal([source.pk for source in unchanged], True)
    updated = rows.determine_again(keys) if changed else 0
    return {
        "detections_checked": len(keys),
        "classifications_checked": len(sources),
        "classifications_masked": len(made),
        "occurrences_updated": updated,
    }


def mask_of(config: ClassMasking, project_id: int) -> Mask:
    """Return the mask of a configuration; its algorithm is made, one for each classifier, list and mode.

    Raises:
        ConfigRefused: the list has none of the classes.
    """
    source = Algorithm.objects.select_related("category_map").get(pk=config.algorithm_id)
    taxa_list = TaxaList.objects.get(pk=config.taxa_list_id)
    labels: Sequence[str] = source.category_map.labels if source.category_map else []
    known = dict(taxa_list.taxa.filter(name__in=set(labels)).values_list("name", "pk"))
    taxa = {index: known[label] for index, label in enumerate(labels) if label in known}
    if not taxa:
        raise ConfigRefused("config.taxa_list_id", f"'{taxa_list.name}' has none of the classes of {source.name}.")
    mode = "reweighted" if config.reweight else "absolute"
    ending = f"_filtered_by_taxa_list_{taxa_list.pk}_{mode}"
    values = {
        "name": f"{source.name[:120]} (only {taxa_list.name[:80]}, {mode} scores, list {taxa_list.pk})",
        "task_type": "classification",
        "category_map": source.category_map,
        "description": f"{source.name} scored again with the taxa of {taxa_list.name} ({mode} scores)",
    }
    key = source.key[: 255 - len(ending)] + ending
    result, _ = Algorithm.objects.update_or_create(project_id=project_id, key=key, defaults=values)
    return Mask(source, result, taxa, len(labels))


def masked_scores(probabilities: Sequence[float] | None, kept: dict[int, int], *, reweight: bool) -> list[float] | None:
    """Return the scores with the classes outside ``kept`` at 0; None if nothing changes or there are no scores."""
    if probabilities is None:
        return None
    scores = [value if index in kept else 0.0 for index, value in enumerate(probabilities)]
    total = math.fsum(scores)
    if total <= 0 or math.fsum(probabilities) - total < NOTHING:
        return None
    return [value / total for value in scores] if reweight else scores


def _sources(mask: Mask, keys: list[int]) -> QuerySet[Classification]:
    """Return the classifier's current rows that are terminal, or were until they were masked."""
    masked = Classification.objects.filter(applied_to=OuterRef("pk"), algorithm=mask.result)
    found = Classification.objects.current().filter(detection__in=keys, algorithm=mask.source)
    return found.filter(Q(terminal=True) | Q(Exists(masked))).order_by("pk")


def _probabilities(source: Classification, classes: int) -> list[float] | None:
    """Return the probability of each class: from the logits, or the stored scores; None without either."""
    logits = list(source.logits or [])
    if len(logits) == classes:
        highest = max(logits)
        powers = [math.exp(value - highest) for value in logits]
        total = math.fsum(powers)
        return [power / total for power in powers]
    scores = list(source.scores or [])
    return scores if len(scores) == classes else None


def _row(source: Classification, mask: Mask, scores: list[float]) -> Classification:
    best = max(mask.taxa, key=lambda index: scores[index])
    return Classification(
        detection_id=source.detection_id,
        algorithm=mask.result,
        category_map_id=mask.result.category_map_id,
        taxon_id=mask.taxa[best],
        score=scores[best],
        scores=scores,
        logits=source.logits,
        terminal=True,
        timestamp=source.timestamp,
        applied_to=source,
    )


def _set_terminal(pks: Sequence[int | None], terminal: bool) -> None:
    if pks:
        Classification.objects.filter(pk__in=pks, terminal=not terminal).update(terminal=terminal)
