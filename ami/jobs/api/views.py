"""The jobs view for users: list, create, run, retry, cancel, delete."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ami.jobs.api import job_filters, next_job
from ami.jobs.api.images import IMAGE_READS, ImageActions
from ami.jobs.api.serializers import DEFAULT_LOGS, MOST_LOGS, JobDetailSerializer, JobSerializer
from ami.jobs.api.workers import WorkerActions
from ami.jobs.models import Job
from ami.jobs.models.states import FINAL
from ami.jobs.services import operations
from ami.jobs.services.progress import progress_of
from ami.main.api.budgets import CAPTURE_LIST
from ami.main.api.errors import Conflict
from ami.main.api.lists import ProjectScoped, parameters, whole_number, words
from ami.main.api.parameters import flag
from ami.main.api.published_jobs import PublishedJobSerializer, accepted_response
from ami.main.permissions import has_role

FILTERS = {
    "project": ("project_id", whole_number),
    "deployment": ("deployment_id", whole_number),
    "pipeline": ("pipeline_id", whole_number),
    "source_image_collection": ("source_image_collection_id", whole_number),
    "source_image_single": ("source_image_single_id", whole_number),
    "job_type_key": ("job_type_key", words),
    "status": ("status", words),
    "dispatch_mode": ("dispatch_mode", words),
}
START_NOW = OpenApiParameter("start_now", OpenApiTypes.BOOL, description="start the job immediately")
NO_ASYNC = OpenApiParameter("no_async", OpenApiTypes.BOOL, description="no effect: the job runs in the queue")
LOGS_LIMIT = OpenApiParameter("logs_limit", OpenApiTypes.INT, description=f"log lines, at most {MOST_LOGS}")


@extend_schema_view(
    list=extend_schema(parameters=[*parameters(FILTERS), *job_filters.PARAMETERS]),
    retrieve=extend_schema(parameters=[LOGS_LIMIT], responses=JobDetailSerializer),
    create=extend_schema(parameters=[START_NOW, NO_ASYNC]),
)
class JobViewSet(WorkerActions, ImageActions, ProjectScoped, viewsets.ModelViewSet[Job]):
    """The jobs of the caller's projects."""

    queryset = Job.objects.select_related("project", "pipeline").order_by("-created_at", "-pk")
    serializer_class = JobSerializer
    filters = FILTERS
    reads = {
        **ProjectScoped.reads,
        "list": job_filters.NAMES,
        "retrieve": ("project", "logs_limit"),
        "images": IMAGE_READS,
        "next": ("project", *job_filters.SLUGS),
    }
    listed = ("list", "next")
    # Part of the contract of workers.
    counts_exactly = True
    budget = CAPTURE_LIST

    def get_queryset(self) -> QuerySet[Job]:
        """Return the caller's jobs; a list is filtered by the query."""
        jobs: QuerySet[Job] = super().get_queryset()
        return job_filters.apply_filters(jobs, self.request) if self.action in ("list", "next") else jobs

    def is_strict(self, request: Request) -> bool:
        """Refuse an unknown parameter of a worker: it would be given another pipeline's job."""
        return self.action == "next" or (self.action == "list" and job_filters.ids_only(request))

    def get_serializer_class(self) -> Any:
        """Include the log only for a single job."""
        return JobDetailSerializer if self.action == "retrieve" else JobSerializer

    def get_serializer_context(self) -> dict[str, Any]:
        context = super().get_serializer_context()
        if self.action == "retrieve":
            context["logs_limit"] = _logs_limit(self.request)
        return context

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # noqa: ARG002
        """Return a page of jobs; with ``ids_only`` one random job that has work for the caller's pipelines."""
        if job_filters.ids_only(request):
            with_work = flag(request, "incomplete_only")
            return Response(next_job.next_jobs(self.get_queryset(), request, with_work=with_work))
        page = self.paginate_queryset(self.get_queryset()) or []
        context = {**self.get_serializer_context(), "progress": progress_of(page)}
        return self.get_paginated_response(JobSerializer(page, many=True, context=context).data)

    def perform_create(self, serializer: Any) -> None:
        """Create the job, and start it if ``start_now`` is set; then an unreachable broker leaves no job."""
        wanted = dict(serializer.validated_data)
        if not has_role(self.request.user, wanted["project"], "member"):
            raise ValidationError({"project": ["You are not a member of this project."]})
        kind, project = wanted.pop("job_type_key", "ml"), wanted.pop("project")
        if flag(self.request, "start_now"):
            serializer.instance, _ = operations.create_and_enqueue(kind, project, **wanted)
        else:
            serializer.instance = operations.create(kind, project, **wanted)

    def perform_destroy(self, instance: Job) -> None:
        """Delete a job that is not running."""
        if instance.status not in FINAL | {"CREATED"}:
            raise Conflict("Cancel the job before deleting it.")
        instance.delete()

    @extend_schema(request=None, responses={202: PublishedJobSerializer})
    @action(detail=True, methods=["post"])
    def run(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Run the job; a finished job starts over."""
        job = self.get_object()
        return accepted_response(job, operations.run(job))

    @extend_schema(request=None, responses={202: PublishedJobSerializer})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Run the failed and unfinished part of a finished job again."""
        job = self.get_object()
        return accepted_response(job, operations.retry(job))

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Cancel the job: immediately, or at its worker's next step. A finished job stays as it is."""
        job = self.get_object()
        operations.cancel(job)
        return Response(self.get_serializer(job).data, status=status.HTTP_200_OK)


def _logs_limit(request: Request) -> int:
    text = request.query_params.get("logs_limit", str(DEFAULT_LOGS))
    try:
        return min(whole_number(text), MOST_LOGS)
    except ValueError as error:
        raise ValidationError({"logs_limit": [f"'{text[:50]}': {error}."]}) from error
