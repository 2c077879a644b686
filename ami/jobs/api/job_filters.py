"""What a list of jobs may be filtered and ordered by: the parameters that clients of the origin send."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from ami.jobs.models import Job
from ami.jobs.models.states import FINAL, JobStatus
from ami.main.api.lists import whole_number, words
from ami.main.api.parameters import flag
from ami.ml.services import pipeline_names

#: Of the origin: what a list of jobs may be ordered by; ids besides.
ORDERINGS = frozenset(
    {
        *("id", "name", "created_at", "updated_at", "status", "started_at", "finished_at"),
        *("project", "deployment", "source_image_collection", "pipeline"),
    }
)
MOST_SLUGS = 1000
MOST_HOURS = 24 * 366 * 10

PARAMETERS = [
    OpenApiParameter("ids_only", OpenApiTypes.BOOL, description="one random job's id and pipeline slug (workers)"),
    OpenApiParameter("incomplete_only", OpenApiTypes.BOOL, description="leave finished jobs out"),
    OpenApiParameter("pipeline__slug", OpenApiTypes.STR, description="one slug"),
    OpenApiParameter("pipeline__slug__in", OpenApiTypes.STR, description="slugs, separated by commas"),
    OpenApiParameter("search", OpenApiTypes.STR, description="a part of the job's or the pipeline's name"),
    OpenApiParameter("ordering", OpenApiTypes.STR, description="a column, descending with a minus"),
    OpenApiParameter(
        "cutoff_hours", OpenApiTypes.INT, description="leave failed jobs out that have not changed for so long"
    ),
    OpenApiParameter("project_id", OpenApiTypes.INT, description="the same as project"),
    OpenApiParameter("page_size", OpenApiTypes.INT, description="the same as limit"),
]
SLUGS = ("pipeline__slug", "pipeline__slug__in")
NAMES = tuple(parameter.name for parameter in PARAMETERS)


def ids_only(request: Request) -> bool:
    return flag(request, "ids_only")


def slugs(request: Request) -> list[str] | None:
    """Return the pipeline slugs that the query asks for; None if it asks for every pipeline.

    Raises:
        rest_framework.exceptions.ValidationError: more than ``MOST_SLUGS``.
    """
    listed = request.query_params.get("pipeline__slug__in", "").split(",")
    wanted = {slug.strip() for slug in listed if slug.strip() and "\x00" not in slug}
    if len(wanted) > MOST_SLUGS:
        raise ValidationError({"pipeline__slug__in": [f"At most {MOST_SLUGS} slugs."]})
    if one := request.query_params.get("pipeline__slug", "").strip():
        return [one] if "\x00" not in one and (not wanted or one in wanted) else []
    return sorted(wanted) or None


def apply_filters(jobs: QuerySet[Job], request: Request) -> QuerySet[Job]:
    """Return the jobs that the query asks for, in its order.

    Raises:
        rest_framework.exceptions.ValidationError: a value is out of its bounds; names the parameter.
    """
    if flag(request, "incomplete_only"):
        jobs = jobs.exclude(status__in=FINAL)
    if (wanted := slugs(request)) is not None:
        jobs = pipeline_names.with_pipelines(jobs, wanted) if wanted else jobs.none()
    if text := _read(request, "search", words):
        jobs = jobs.filter(Q(name__icontains=text) | Q(pipeline__name__icontains=text))
    if (hours := _read(request, "cutoff_hours", _hours)) is not None:
        old = timezone.now() - timedelta(hours=hours)
        jobs = jobs.exclude(status__in=(JobStatus.FAILURE, JobStatus.REVOKED), updated_at__lt=old)
    if order := _read(request, "ordering", _ordering):
        jobs = jobs.order_by(*order)
    return jobs


def _read(request: Request, name: str, parser: Callable[[str], Any]) -> Any:
    text = request.query_params.get(name)
    try:
        return None if text is None else parser(text)
    except ValueError as error:
        raise ValidationError({name: [f"'{text[:50]}': {error}."]}) from error


def _hours(text: str) -> int:
    if (hours := whole_number(text)) > MOST_HOURS:
        raise ValueError(f"must be at most {MOST_HOURS}")
    return hours


def _ordering(text: str) -> list[str]:
    columns = [column.strip() for column in text.split(",") if column.strip()]
    if wrong := [column for column in columns if column.removeprefix("-") not in ORDERINGS]:
        raise ValueError(f"'{wrong[0]}' is none of {', '.join(sorted(ORDERINGS))}")
    return [*columns, "-pk"] if columns else []
