"""Finds the next job for a pull worker: with work for its pipelines, in turn. The request is also a heartbeat."""

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request

from ami.jobs.api.job_filters import slugs
from ami.jobs.models import Job
from ami.jobs.models.states import ImageState
from ami.jobs.services import turns
from ami.main.api.lists import whole_number
from ami.main.api.pagination import MAX_PER_PAGE
from ami.main.permissions import is_worker, visible_projects
from ami.ml.services import pipeline_names
from ami.ml.services.heartbeats import record_heartbeat


def next_jobs(jobs: QuerySet[Job], request: Request, *, with_work: bool, most: int | None = None) -> dict[str, Any]:
    """Return {"count", "results": [{"id", "pipeline_slug"}]}: one job, or up to ``limit``.

    ``with_work``: only jobs that have work for a worker now, which are active, asynchronous, and have published or
    claimed images. Then the one whose last turn is the longest ago comes first and its turn begins, which keeps pollers
    from all draining the same job (incident 38); else the order is random.
    """
    if with_work:
        jobs = turns.with_images(jobs, ImageState.PUBLISHED, ImageState.CLAIMED)
    _heartbeat(request)
    asked, limit = pipeline_names.asked_slug(slugs(request) or ()), most or _limit(request)
    order = turns.IN_TURN if with_work else ("?",)
    rows = list(jobs.order_by(*order).values_list("pk", asked, "served_at")[: max(limit, turns.MOST_TRIES)])
    if with_work and (place := turns.begin([(pk, served_at) for pk, _, served_at in rows])):
        rows.insert(0, rows.pop(place))
    count = jobs.count() if most is None else min(limit, len(rows))
    return {"count": count, "results": [{"id": pk, "pipeline_slug": slug} for pk, slug, _ in rows[:limit]]}


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
