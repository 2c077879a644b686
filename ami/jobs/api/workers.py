"""Actions of pull workers on a job: fetch tasks, post results."""

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ami.jobs.api import job_filters, next_job
from ami.jobs.api.pull_client import client_of, has_name
from ami.jobs.api.serializers import JobReferenceSerializer
from ami.jobs.errors import NatsUnavailable
from ami.jobs.models import Job
from ami.jobs.models.states import ACTIVE, DispatchMode
from ami.jobs.services import claim_extension, held_images, image_claims, posted_results, turns, worker_lines
from ami.ml.api import bodies
from ami.ml.schemas import (
    MAX_BATCH,
    ResultAcceptedResponse,
    ResultRequest,
    TasksRequest,
    TasksResponse,
)
from ami.ml.services.heartbeats import record_heartbeat

POSTED = {200: ResultAcceptedResponse}


class WorkerActions:
    """The worker actions of the jobs view; a worker's token admits only these and the search for the next job."""

    #: Workers call these every few seconds, so they are not recorded in the audit.
    unrecorded = frozenset({"tasks", "result"})

    def admits_worker(self, request: Request) -> bool:
        """Admit workers to `tasks`, `result`, `next`, and the list with ``ids_only``."""
        action: str | None = self.action  # type: ignore[attr-defined]
        return action in {"tasks", "result", "next"} or (action == "list" and job_filters.ids_only(request))

    @extend_schema(
        parameters=[each for each in job_filters.PARAMETERS if each.name in job_filters.SLUGS],
        responses={200: JobReferenceSerializer, 204: None},
        filters=False,
    )
    @action(detail=False, methods=["get"], pagination_class=None)
    def next(self, request: Request) -> Response:
        """Return a random job that has work for the caller's pipelines; 204 without one. It is also a heartbeat.

        With ANTENNA_NEXT_JOB; no release of the origin has it.
        """
        if not settings.ANTENNA_NEXT_JOB:
            raise NotFound
        jobs = self.get_queryset()  # type: ignore[attr-defined]
        found = next_job.next_jobs(jobs, request, with_work=True, most=1)["results"]
        return Response(found[0]) if found else Response(status=204)

    @extend_schema(request=TasksRequest, responses=TasksResponse)
    @action(detail=True, methods=["post"])
    def tasks(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Hand out up to ``batch_size`` images; none if the job is not active, 503 if NATS is unreachable.

        None as well where its turn is over and another job of its pipeline waits: ask for a job again. Fewer, or none,
        where the client, which has named itself, holds many images of other jobs: post their results first.

        The images that the client already holds stay with it for longer, a bounded number of times.
        """
        job: Job = self.get_object()  # type: ignore[attr-defined]
        wanted = bodies.read(request, TasksRequest, bodies.SMALL_BODY_BYTES)
        if job.dispatch_mode != DispatchMode.ASYNC_API or job.pipeline is None:
            raise ValidationError({"dispatch_mode": ["Only an async_api job with a pipeline has tasks to fetch."]})
        record_heartbeat(project_ids=[job.project_id], slugs=[job.pipeline.slug])
        by = worker_lines.actor(request.user, request.auth)
        if job.status not in ACTIVE:
            worker_lines.inactive(job, by=by)
            return Response({"tasks": []})
        if turns.is_over(job, self.get_queryset()):  # type: ignore[attr-defined]
            return Response({"tasks": []})
        client = client_of(request, wanted.client_info)
        # Before the fetch, which would hand the client its own image again.
        claim_extension.extend(job, claim_extension.due_claims(job, client))
        most = min(wanted.batch_size, MAX_BATCH)
        if has_name(wanted.client_info):
            most = held_images.allowance(job, client, most)
        try:
            base_url = request.build_absolute_uri("/")
            tasks = image_claims.claim(job, most, client=client, base_url=base_url) if most else []
        except NatsUnavailable as error:
            worker_lines.unavailable(job, error, by=by)
            raise
        worker_lines.fetched(job, requested=wanted.batch_size, delivered=len(tasks), by=by)
        return Response(TasksResponse(tasks=tasks).model_dump(mode="json", exclude_none=True))

    @extend_schema(request=ResultRequest, responses=POSTED)
    @action(detail=True, methods=["post"])
    def result(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Accept results: each is stored durably before it is published, and equal posts are one result.

        A result that is wrong, or not of this job, is refused with the reason in its entry of `tasks`; the others are
        queued. 413 above the size limit, 400 for a body that is no list of results, and 503 while another large body is
        in progress store nothing. The other images that the client holds stay with it for longer, as after `tasks`; an
        empty list of results does only that.
        """
        job: Job = self.get_object()  # type: ignore[attr-defined]
        with bodies.results(request) as posted:
            if job.pipeline is not None:
                record_heartbeat(project_ids=[job.project_id], slugs=[job.pipeline.slug])
            subjects = [item.reply_subject for item in posted.results]
            # Found before their results are handled, by which a client is known; extended once these are stored.
            due = claim_extension.due_claims(job, client_of(request, posted.client_info), subjects)
            tasks = posted_results.take(job, posted.results)
            claim_extension.extend(job, due)
        queued = sum(task.status == "queued" for task in tasks)
        by = worker_lines.actor(request.user, request.auth)
        worker_lines.posted(job, [task.task_id for task in tasks], refused=len(tasks) - queued, by=by)
        answer = ResultAcceptedResponse(job_id=job.pk, results_queued=queued, tasks=tasks)
        return Response(answer.model_dump(mode="json", exclude_none=True))
