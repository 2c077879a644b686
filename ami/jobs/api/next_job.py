"""Finds the next job for a pull worker: a random one with work for its pipelines. The request is also a heartbeat."""

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ACTIVE, FINAL, DispatchMode, ImageState
from ami.main.api.lists import whole_number
from ami.main.api.pagination import MAX_PER_PAGE
from ami.main.permissions import is_worker, visible_projects
from ami.ml.services import pipeline_names
from ami.ml.services.heartbeats import record_heartbeat

PARAMETERS = [
    OpenApiParameter("ids_only", OpenApiTypes.BOOL, description="one random job's id and pipeline slug (workers)"),
    OpenApiParameter("incomplete_only", OpenApiTypes.BOOL, description="leave finished jobs out"),
    OpenApiParameter("pipeline__slug__in", OpenApiTypes.STR, description="slugs, separated by commas"),
]


def ids_only(request: Request) -> bool:
    return _flag(request, "ids_only")


def slugs(request: Request) -> list[str]:
    """Return the pipeline slugs in the query, at most 1000."""
    text = request.query_params.get("pipeline__slug__in", "")
    return [slug.strip() for slug in text.replace("\x00", "").split(",") if slug.strip()][:1000]


def apply_filters(jobs: QuerySet[Job], request: Request) -> QuerySet[Job]:
    if _flag(request, "incomplete_only"):
        jobs = jobs.exclude(status__in=FINAL)
    return pipeline_names.with_pipelines(jobs, slugs(request))


def next_jobs(jobs: QuerySet[Job], request: Request) -> dict[str, Any]:
    """Return {"count", "results": [{"id", "pipeline_slug"}]}: one job, or up to ``limit``, in random order.

    An incomplete job has work for a worker now: it is active, asynchronous, and has published or claimed images.
    Random order keeps pollers from all draining the same job (incident 38).
    """
    if _flag(request, "incomplete_only"):
        handed_out = {ImageState.PUBLISHED, ImageState.CLAIMED}
        work = Exists(JobImage.objects.filter(job=OuterRef("pk"), state__in=handed_out))
        jobs = jobs.filter(work, status__in=ACTIVE, dispatch_mode=DispatchMode.ASYNC_API)
    _heartbeat(request)
    asked = pipeline_names.asked_slug(slugs(request))
    rows = list(jobs.order_by("?").values_list("pk", asked)[: _limit(request)])
    return {"count": jobs.count(), "results": [{"id": pk, "pipeline_slug": slug} for pk, slug in rows]}


def _heartbeat(request: Request) -> None:
    projects = None
    if is_worker(request) or not request.user.is_superuser:
        projects = list(visible_projects(request).values_list("pk", flat=True))
    if wanted := slugs(request):
        record_heartbeat(project_ids=projects, slugs=wanted)


def _limit(request: Request) -> int:
    try:
        return max(1, min(MAX_PER_PAGE, whole_number(request.query_params.get("limit", "1"))))
    except ValueError:
        return 1


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in {"1", "true", "yes"}
