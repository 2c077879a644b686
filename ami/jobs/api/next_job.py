"""Finds the next job for a pull worker: a random one with work for its pipelines. The request is also a heartbeat."""

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from rest_framework.request import Request

from ami.jobs.api.job_filters import slugs
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ACTIVE, DispatchMode, ImageState
from ami.main.api.lists import whole_number
from ami.main.api.pagination import MAX_PER_PAGE
from ami.main.permissions import is_worker, visible_projects
from ami.ml.services import pipeline_names
from ami.ml.services.heartbeats import record_heartbeat


def next_jobs(jobs: QuerySet[Job], request: Request, *, with_work: bool, most: int | None = None) -> dict[str, Any]:
    """Return {"count", "results": [{"id", "pipeline_slug"}]}: one job, or up to ``limit``, in random order.

    ``with_work``: only jobs that have work for a worker now, which are active, asynchronous, and have published or
    claimed images. Random order keeps pollers from all draining the same job (incident 38).
    """
    if with_work:
        handed_out = {ImageState.PUBLISHED, ImageState.CLAIMED}
        work = Exists(JobImage.objects.filter(job=OuterRef("pk"), state__in=handed_out))
        jobs = jobs.filter(work, status__in=ACTIVE, dispatch_mode=DispatchMode.ASYNC_API)
    _heartbeat(request)
    asked = pipeline_names.asked_slug(slugs(request) or ())
    rows = list(jobs.order_by("?").values_list("pk", asked)[: most or _limit(request)])
    count = jobs.count() if most is None else len(rows)
    return {"count": count, "results": [{"id": pk, "pipeline_slug": slug} for pk, slug in rows]}


def _heartbeat(request: Request) -> None:
    projects = None
    if is_worker(request) or not request.user.is_superuser:
        projects = list(visible_projects(request).values_list("pk", flat=True))
    if wanted := slugs(request):
        record_heartbeat(project_ids=projects, slugs=wanted)


def _limit(request: Request) -> int:
    asked = request.query_params
    try:
        return max(1, min(MAX_PER_PAGE, whole_number(asked.get("limit", asked.get("page_size", "1")))))
    except ValueError:
        return 1
