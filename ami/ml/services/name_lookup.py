"""Looks up the names of a response in the job's project: pipeline, algorithms and taxa."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from ami.main.models import Taxon
from ami.ml.errors import PipelineNotConfigured
from ami.ml.models import Algorithm, Pipeline, ProjectPipelineConfig
from ami.ml.schemas import DetectionResponse


@dataclass(frozen=True)
class NameLookup:
    """Database rows by their names on the wire; ``twins`` maps shared algorithms to own ones with the same key."""

    detector: Algorithm
    algorithms: dict[str, Algorithm]
    taxa: dict[str, int]
    twins: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, slug: str, detections: Sequence[DetectionResponse], project_id: int, pipeline: Pipeline | None = None
    ) -> "NameLookup":
        """Look everything up in the project; missing taxa are created in a transaction of their own.

        ``pipeline`` is the job's; it is used if it has this slug. ``detections`` are those that will be saved.

        Raises:
            PipelineNotConfigured: the pipeline or an algorithm is not registered, with its slug or key.
        """
        if pipeline is None or pipeline.slug != slug:
            pipeline = Pipeline.objects.for_project(project_id, slug)
        if pipeline is None:
            raise PipelineNotConfigured(f"Pipeline '{slug}' is not registered.")
        classifications = [each for detection in detections for each in detection.classifications]
        detector = pipeline.detector().key
        keys = {detector, *(each.algorithm.key for each in (*detections, *classifications))}
        algorithms, twins = _algorithms(keys, project_id, pipeline)
        ranks = _ranks(algorithms.values())
        taxa = _taxa({each.classification for each in classifications}, ranks, project_id)
        return cls(algorithms[detector], algorithms, taxa, twins)


def _algorithms(keys: set[str], project_id: int, pipeline: Pipeline) -> tuple[dict[str, Algorithm], dict[int, int]]:
    """Return key -> algorithm, the project's own before a shared one, and shared -> own where both have the key."""
    named = Algorithm.objects.filter(key__in=keys).select_related("category_map")
    found = {each.key: each for each in named.filter(project=project_id)}
    shared = dict(Algorithm.objects.filter(project=None, key__in=keys).values_list("key", "pk"))
    twins = {pk: found[key].pk for key, pk in shared.items() if key in found}
    if shared.keys() - found.keys():
        found = {each.key: each for each in named.filter(_shared_with(project_id, pipeline))} | found
    if missing := sorted(keys - found.keys()):
        raise PipelineNotConfigured(f"Algorithms {', '.join(map(repr, missing))} are not registered.")
    return found, twins


def _shared_with(project_id: int, pipeline: Pipeline) -> Q:
    """Return the filter for shared algorithms of the job's pipeline, or of another one that the project uses."""
    steps = Algorithm.pipelines.through.objects.filter(algorithm=OuterRef("pk"))
    used = ProjectPipelineConfig.objects.filter(project=project_id).values("pipeline_id")
    return Q(Exists(steps.filter(Q(pipeline=pipeline) | Q(pipeline__in=used))), project=None)


def _ranks(algorithms: Iterable[Algorithm]) -> dict[str, str]:
    """Return label -> rank for the labels whose category map names a known rank."""
    entries = (entry for a in algorithms if a.category_map for entry in a.category_map.data if isinstance(entry, dict))
    known = set(Taxon.Rank.values)
    ranks = {str(e.get("label")): str(e.get("taxon_rank") or "").upper() for e in entries}
    return {label: rank for label, rank in ranks.items() if rank in known}


@transaction.atomic
def _taxa(names: set[str], ranks: dict[str, str], project_id: int) -> dict[str, int]:
    """Return name -> primary key; a new taxon belongs to the project and is not in the shared checklist."""
    names = {name.replace("\x00", "") for name in names} - {""}
    found = dict(Taxon.objects.filter(name__in=names).values_list("name", "pk"))
    if missing := sorted(names - found.keys()):
        new = [Taxon(name=n, display_name=n, rank=ranks.get(n, Taxon.Rank.UNKNOWN), shared=False) for n in missing]
        # Sorted, so that two results with the same new taxa wait for each other instead of deadlocking.
        Taxon.objects.bulk_create(new, ignore_conflicts=True)
        found |= dict(Taxon.objects.filter(display_name__in=missing).values_list("display_name", "pk"))
        found |= dict(Taxon.objects.filter(name__in=missing).values_list("name", "pk"))
    _link(sorted(set(found.values())), project_id)
    return found


def _link(taxon_ids: list[int], project_id: int) -> None:
    through = Taxon.projects.through
    linked = through.objects.filter(project_id=project_id, taxon_id__in=taxon_ids).values_list("taxon_id", flat=True)
    new = [through(project_id=project_id, taxon_id=pk) for pk in sorted(set(taxon_ids) - set(linked))]
    through.objects.bulk_create(new, ignore_conflicts=True)
