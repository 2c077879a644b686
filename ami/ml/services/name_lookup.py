"""Looks up the names of responses in the job's project: pipeline, algorithms and taxa."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from ami.main.models import Taxon
from ami.main.services.compiled_query import CompiledQuery
from ami.ml.errors import PipelineNotConfigured
from ami.ml.models import Algorithm, AlgorithmAlias, AlgorithmCategoryMap, Pipeline, ProjectPipelineConfig
from ami.ml.models.algorithm import DETECTION_TASK_TYPES


class KnownAlgorithm(NamedTuple):
    """What is needed of an `Algorithm`; ``is_step`` is of the pipeline, ``is_used`` in a pipeline of the project.

    An algorithm with aliases has one row for each.
    """

    pk: int
    key: str
    project_id: int | None
    category_map_id: int | None
    task_type: str
    is_step: bool
    is_used: bool
    alias: str | None = None


@dataclass(frozen=True)
class NameLookup:
    """Database rows by their names on the wire; ``twins`` maps shared algorithms to own ones with the same key."""

    detector: KnownAlgorithm
    algorithms: dict[str, KnownAlgorithm]
    taxa: dict[str, int]
    twins: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, slug: str, detections: Iterable[Any], project_id: int, pipeline: Pipeline | None = None
    ) -> "NameLookup":
        """Look everything up in the project; missing taxa are created in a transaction of their own.

        ``pipeline`` is the job's; it is used if it has this slug. ``detections`` are those that will be saved:
        `DetectionResponse` or `CheckedDetection`.

        Raises:
            PipelineNotConfigured: the pipeline or an algorithm is not registered, with its slug or key.
        """
        if pipeline is None or pipeline.slug != slug:
            pipeline = Pipeline.objects.for_project(project_id, slug)
        if pipeline is None:
            raise PipelineNotConfigured(f"Pipeline '{slug}' is not registered.")
        keys, names = _names(detections)
        detector, algorithms, twins = _algorithms(keys, project_id, pipeline)
        taxa = _taxa(names, algorithms.values(), project_id)
        return cls(detector, algorithms, taxa, twins)


def _names(detections: Iterable[Any]) -> tuple[set[str], set[str]]:
    """Return the keys of the algorithms and the names of the taxa."""
    keys, names = set(), set()
    for detection in detections:
        keys.add(detection.algorithm.key)
        for classification in detection.classifications:
            keys.add(classification.algorithm.key)
            names.add(classification.classification)
    return keys, names


def _algorithms(
    keys: set[str], project_id: int, pipeline: Pipeline
) -> tuple[KnownAlgorithm, dict[str, KnownAlgorithm], dict[int, int]]:
    """Return the detector, key -> algorithm, and shared -> own where the project has both with one key.

    The project's own algorithm comes before a shared one, which is used only if a pipeline of the project has it.
    """
    rows = [KnownAlgorithm(*row) for row in _named.rows(sorted(keys) or [""], project_id, pipeline.pk)]
    step_key = pipeline.detector_of({row.pk: row for row in rows if row.is_step}.values()).key
    mine = [row for row in rows if row.project_id == project_id]
    own = {row.alias: row for row in mine if row.alias} | {row.key: row for row in mine}
    shared = {row.key: row for row in rows if row.project_id is None}
    usable = {key: row for key, row in shared.items() if row.is_step or row.is_used}
    found = {**usable, **own}
    if missing := sorted({*keys, step_key} - found.keys()):
        raise PipelineNotConfigured(f"Algorithms {', '.join(map(repr, missing))} are not registered.")
    twins = {row.pk: own[key].pk for key, row in shared.items() if key in own}
    return found[step_key], found, twins


@CompiledQuery
def _named(keys: list[str], project_id: int, pipeline_id: int) -> QuerySet[Algorithm, Any]:
    """Return the algorithms with these keys, or with that of the pipeline's detector: the project's and the shared."""
    step = Algorithm.pipelines.through.objects.filter(algorithm=OuterRef("pk"))
    used = ProjectPipelineConfig.objects.filter(project=project_id).values("pipeline_id")
    marked = Algorithm.objects.annotate(
        is_step=Exists(step.filter(pipeline=pipeline_id)), is_used=Exists(step.filter(pipeline__in=used))
    )
    detectors = Algorithm.objects.filter(pipelines=pipeline_id, task_type__in=DETECTION_TASK_TYPES).order_by()
    # Shared algorithms, too, whose key is an alias of an own one: their results are reassigned.
    aliases = AlgorithmAlias.objects.filter(algorithm__key__in=keys, project=project_id)
    named = Q(key__in=keys) | Q(aliases__key__in=keys) | Q(key__in=detectors.values("key"))
    named |= Q(project=None, key__in=aliases.values("key"))
    rows = marked.filter(named, Q(project=project_id) | Q(project=None)).order_by()
    return rows.values_list(*KnownAlgorithm._fields[:-1], "aliases__key")


def _taxa(names: set[str], algorithms: Iterable[KnownAlgorithm], project_id: int) -> dict[str, int]:
    """Return name -> primary key; a new taxon belongs to the project and is not in the shared checklist."""
    names = {name.replace("\x00", "") for name in names} - {""}
    if not names:
        return {}
    found = {name: (pk, is_linked) for name, pk, is_linked in _known_taxa.rows(sorted(names), project_id)}
    if names - found.keys():
        return _create_taxa(names, _ranks(algorithms), project_id)
    _link(sorted(pk for pk, is_linked in found.values() if not is_linked), project_id)
    return {name: pk for name, (pk, _) in found.items()}


@CompiledQuery
def _known_taxa(names: list[str], project_id: int) -> QuerySet[Taxon, Any]:
    linked = Exists(Taxon.projects.through.objects.filter(project_id=project_id, taxon=OuterRef("pk")))
    return Taxon.objects.filter(name__in=names).order_by().annotate(linked=linked).values_list("name", "pk", "linked")


@transaction.atomic
def _create_taxa(names: set[str], ranks: dict[str, str], project_id: int) -> dict[str, int]:
    found = dict(Taxon.objects.filter(name__in=names).values_list("name", "pk"))
    if missing := sorted(names - found.keys()):
        new = [Taxon(name=n, display_name=n, rank=ranks.get(n, Taxon.Rank.UNKNOWN), shared=False) for n in missing]
        # Sorted, so that two results with the same new taxa wait for each other instead of deadlocking.
        Taxon.objects.bulk_create(new, ignore_conflicts=True)
        found |= dict(Taxon.objects.filter(display_name__in=missing).values_list("display_name", "pk"))
        found |= dict(Taxon.objects.filter(name__in=missing).values_list("name", "pk"))
    _link(sorted(set(found.values())), project_id)
    return found


def _ranks(algorithms: Iterable[KnownAlgorithm]) -> dict[str, str]:
    """Return label -> rank for the labels whose category map names a known rank."""
    used = {algorithm.category_map_id for algorithm in algorithms} - {None}
    maps = AlgorithmCategoryMap.objects.filter(pk__in=used).values_list("data", flat=True)
    entries = (entry for data in maps for entry in data if isinstance(entry, dict))
    known = set(Taxon.Rank.values)
    ranks = {str(e.get("label")): str(e.get("taxon_rank") or "").upper() for e in entries}
    return {label: rank for label, rank in ranks.items() if rank in known}


def _link(taxon_ids: list[int], project_id: int) -> None:
    if taxon_ids:
        through = Taxon.projects.through
        new = [through(project_id=project_id, taxon_id=pk) for pk in taxon_ids]
        through.objects.bulk_create(new, ignore_conflicts=True)
