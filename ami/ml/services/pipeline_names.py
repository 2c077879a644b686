"""The names of pipelines on the wire: a pipeline's slug, and the aliases by which services know it."""

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db.models import Case, F, Model, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from ami.ml.models import Pipeline, PipelineAlias, ProcessingService

Row = TypeVar("Row", bound=Model)


def with_pipelines(rows: QuerySet[Row], slugs: Iterable[str]) -> QuerySet[Row]:
    """Return the rows whose ``pipeline`` has one of these slugs, or an alias; all rows if there are no slugs."""
    wanted = sorted(set(slugs))
    return rows.filter(pipeline__in=Pipeline.objects.named(wanted).values("pk")) if wanted else rows


def asked_slug(slugs: Iterable[str]) -> Any:
    """Return an expression for rows with a ``pipeline``: the one of these slugs that names it, else its own slug.

    A worker polls with the slug that it knows, and drops a job whose slug it does not know.
    """
    wanted = sorted(set(slugs))
    if not wanted:
        return F("pipeline__slug")
    alias = PipelineAlias.objects.filter(pipeline=OuterRef("pipeline"), slug__in=wanted).order_by("slug")
    known = When(pipeline__slug__in=wanted, then=F("pipeline__slug"))
    return Case(known, default=Coalesce(Subquery(alias.values("slug")[:1]), F("pipeline__slug")))


def slug_at(service: ProcessingService, pipeline: Pipeline) -> str:
    """Return the slug by which a service knows the pipeline."""
    aliases = PipelineAlias.objects.filter(pipeline=pipeline, services=service)
    return aliases.values_list("slug", flat=True).first() or pipeline.slug
