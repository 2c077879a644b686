"""Gives a project's pipeline or algorithm a further name, and takes it away when the name gets a row of its own."""

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from ami.ml.models import Algorithm, AlgorithmAlias, Pipeline, PipelineAlias, ProcessingService
from ami.ml.schemas import AlgorithmConfigResponse, PipelineConfigResponse

Row = TypeVar("Row", bound=Model)


def twin_of(
    own: QuerySet[Row], identity: str, config: PipelineConfigResponse | AlgorithmConfigResponse
) -> tuple[Row | None, Row | None]:
    """Return the project's row of this slug or key, and another one with the same name and version.

    ``own`` are the project's rows; ``identity`` is the field that names a row on the wire: "slug" or "key".
    """
    named = getattr(config, identity)
    rows: list[Any] = list(own.filter(Q(**{identity: named}) | Q(name=config.name, version=config.version)))
    mine = next((row for row in rows if getattr(row, identity) == named), None)
    return mine, next((row for row in rows if row is not mine), None)


def alias_pipeline(project_id: int, pipeline: Pipeline, slug: str, services: Iterable[ProcessingService]) -> None:
    """Let the project's pipeline be found by this slug, too; the services know it by no other. Own slugs stay."""
    if Pipeline.objects.filter(project=project_id, slug=slug).exists():
        return
    alias, _ = PipelineAlias.objects.update_or_create(project_id=project_id, slug=slug, defaults={"pipeline": pipeline})
    alias.services.add(*services)


def alias_algorithm(project_id: int, algorithm: Algorithm, key: str) -> None:
    """Let the project's algorithm be found by this key, too. Own keys stay."""
    if not Algorithm.objects.filter(project=project_id, key=key).exists():
        AlgorithmAlias.objects.update_or_create(project_id=project_id, key=key, defaults={"algorithm": algorithm})
