"""Creates the jobs that run a pipeline again over selected captures, one per project."""

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ami.celery import origin
from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services import operations
from ami.main.models import Project, SourceImage
from ami.ml.models import Pipeline

logger = logging.getLogger(__name__)


def pipeline_for(project: Project) -> Pipeline | None:
    """Return the project's default pipeline, or the first one enabled for it; never another project's own."""
    default = project.default_processing_pipeline
    if default is not None and default.project_id in {None, project.pk}:
        return default
    return Pipeline.objects.enabled_for(project.pk).order_by("pk").first()


def _pipeline_in(project: Project, pipeline: Pipeline | None) -> Pipeline | None:
    """Return the project's enabled pipeline with the slug of ``pipeline``, or the project's default if it is None."""
    if pipeline is None:
        return pipeline_for(project)
    return Pipeline.objects.enabled_for(project.pk).named([pipeline.slug]).first()


def create_jobs(image_ids: Iterable[int], pipeline: Pipeline | None, *, once: str, request: Any = None) -> list[int]:
    """Create and start a job per project for these captures; repeating it with the same ``once`` adds none.

    Returns the jobs' primary keys. Captures of projects without a pipeline are logged and skipped.
    """
    by_project: dict[int, list[int]] = defaultdict(list)
    pairs = SourceImage.objects.filter(pk__in=list(image_ids)).order_by("pk").values_list("project_id", "pk")
    for project_id, pk in pairs:
        by_project[project_id].append(pk)
    jobs = []
    for project in Project.objects.filter(pk__in=by_project).order_by("pk"):
        chosen = _pipeline_in(project, pipeline)
        if chosen is None:
            logger.warning(
                "Reprocessing skipped: project %s has no pipeline, %d captures", project, len(by_project[project.pk])
            )
            continue
        jobs.append(_job(project, chosen, by_project[project.pk], once, _origin(request)))
    return jobs


def _job(project: Project, pipeline: Pipeline, ids: list[int], once: str, asker: str) -> int:
    """Return the key of this request's job in the project; create and start it unless an earlier delivery did."""
    known = Job.objects.filter(project=project, params__asked_by_task=once).first()
    if known is not None:
        if known.status in {JobStatus.CREATED, JobStatus.PENDING}:
            operations.run(known, origin=asker)
        return known.pk
    job, _ = operations.create_and_enqueue(
        "ml",
        project,
        name=f"Reprocess {len(ids)} captures",
        params={"source_image_ids": ids, "asked_by_task": once},
        pipeline=pipeline,
        origin=asker,
    )
    return job.pk


def _origin(request: Any) -> str:
    return origin.of_request(request) if request is not None else origin.PERSON
