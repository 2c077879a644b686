"""The names in a response, looked up once: its pipeline, its algorithms, its taxa."""

from collections.abc import Iterable
from dataclasses import dataclass

from ami.main.models import Taxon
from ami.ml.errors import PipelineNotConfigured
from ami.ml.models import Algorithm, Pipeline
from ami.ml.schemas import PipelineResultsResponse


@dataclass(frozen=True)
class Catalogue:
    """What the wire's names stand for in the database."""

    detector: Algorithm
    algorithms: dict[str, Algorithm]
    taxa: dict[str, int]

    @classmethod
    def of(cls, response: PipelineResultsResponse, project_id: int) -> "Catalogue":
        """Look everything up; taxa that do not exist yet are created, in a transaction of their own.

        Raises:
            PipelineNotConfigured: the pipeline or an algorithm is not registered, with its slug or key.
        """
        pipeline = Pipeline.objects.filter(slug=response.pipeline).first()
        if pipeline is None:
            raise PipelineNotConfigured(f"Pipeline '{response.pipeline}' is not registered.")
        keys = {detection.algorithm.key for detection in response.detections}
        opinions = [opinion for detection in response.detections for opinion in detection.classifications]
        keys |= {opinion.algorithm.key for opinion in opinions}
        algorithms = {a.key: a for a in Algorithm.objects.filter(key__in=keys).select_related("category_map")}
        if missing := sorted(keys - algorithms.keys()):
            raise PipelineNotConfigured(f"Algorithms {', '.join(map(repr, missing))} are not registered.")
        ranks = _ranks(algorithms.values())
        taxa = _taxa({opinion.classification for opinion in opinions}, ranks, project_id)
        return cls(pipeline.detector(), algorithms, taxa)


def _ranks(algorithms: Iterable[Algorithm]) -> dict[str, str]:
    """Return label -> rank, where a category map says so."""
    entries = (entry for a in algorithms if a.category_map for entry in a.category_map.data if isinstance(entry, dict))
    known = set(Taxon.Rank.values)
    ranks = {str(e.get("label")): str(e.get("taxon_rank") or "").upper() for e in entries}
    return {label: rank for label, rank in ranks.items() if rank in known}


def _taxa(names: set[str], ranks: dict[str, str], project_id: int) -> dict[str, int]:
    names = {name.replace("\x00", "") for name in names} - {""}
    found = dict(Taxon.objects.filter(name__in=names).values_list("name", "pk"))
    if missing := sorted(names - found.keys()):
        new = [Taxon(name=n, display_name=n, rank=ranks.get(n, Taxon.Rank.UNKNOWN)) for n in missing]
        # Sorted, so that two results with the same new taxa wait for each other instead of dead-locking.
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
