"""API views of pipelines, algorithms and processing services for users."""

from typing import Any

from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.lists import PROJECT, UsedInProjects, projects_of
from ami.main.api.pagination import BoundedPagination
from ami.main.api.parameters import KnownParameters, project_asked
from ami.ml.api import patience
from ami.ml.api.serializers import AlgorithmSerializer, PipelineSerializer, ProcessingServiceSerializer
from ami.ml.models import Algorithm, Pipeline, ProcessingService
from ami.ml.schemas import ProcessingServiceStatusResponse
from ami.ml.services import probes
from ami.ml.services.registration import MAX_ERROR_CHARACTERS, RegistrationRefused, register
from ami.ml.tasks import check_processing_service
from ami.queues.publish import publish_for_user


class CheckAskedSerializer(serializers.Serializer[Any]):
    """The task that was published."""

    task_id = serializers.CharField()
    queue = serializers.CharField()
    flower_url = serializers.CharField(allow_null=True)


class CatalogueViewSet(UsedInProjects, KnownParameters, viewsets.ReadOnlyModelViewSet[Any]):
    """Rows owned by a project, or shared and enabled for a project."""

    permission_classes = (IsAuthenticated,)
    pagination_class = BoundedPagination
    lookup_value_regex = r"\d{1,18}"
    reads = {"list": ("project",)}


@extend_schema_view(list=extend_schema(parameters=[PROJECT]))
class AlgorithmViewSet(CatalogueViewSet):
    """Algorithms of the caller's projects: their own, and the shared ones of pipelines enabled for them."""

    queryset = Algorithm.objects.all()
    serializer_class = AlgorithmSerializer


@extend_schema_view(list=extend_schema(parameters=[PROJECT]))
class PipelineViewSet(CatalogueViewSet):
    """Pipelines of the caller's projects: their own, and the shared ones enabled for them."""

    queryset = Pipeline.objects.prefetch_related("algorithms")
    serializer_class = PipelineSerializer


class ProcessingServiceViewSet(
    KnownParameters,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.ListModelMixin,
    viewsets.GenericViewSet[ProcessingService],
):
    """The processing services of the caller's projects."""

    queryset = ProcessingService.objects.all()
    serializer_class = ProcessingServiceSerializer
    permission_classes = (IsAuthenticated,)
    pagination_class = BoundedPagination
    lookup_value_regex = r"\d{1,18}"
    reads = {"list": ("project",)}

    def get_queryset(self) -> QuerySet[ProcessingService]:
        """Return services of visible projects without links to other projects; a superuser sees all."""
        services = super().get_queryset()
        listed = self.action == "list"
        if self.request.user.is_superuser and not (listed and project_asked(self.request)):
            return services.prefetch_related("projects", "pipelines")
        mine = projects_of(self.request, narrowed=False)
        wanted = projects_of(self.request, narrowed=listed)
        linked = ProcessingService.projects.through.objects.filter(
            processingservice=OuterRef("pk"), project__in=wanted.values("pk")
        )
        return services.filter(Exists(linked)).prefetch_related(
            Prefetch("projects", mine), Prefetch("pipelines", Pipeline.objects.used_in(mine.values("pk")))
        )

    def perform_create(self, serializer: Any) -> None:
        """Create the service for a member of the project; only staff may give it an address.

        The server calls that address, so it could otherwise be used to reach hosts that only the server can reach.
        """
        if serializer.validated_data.get("endpoint_url") and not self.request.user.is_staff:
            raise PermissionDenied("Only staff may register a service with an address; leave endpoint_url empty.")
        serializer.save()

    @extend_schema(responses=ProcessingServiceStatusResponse)
    @action(detail=True, methods=["get"])
    def status(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Probe the service now; return its liveness and pipelines."""
        mine = projects_of(request, narrowed=False)
        with patience.seconds() as seconds:
            status = probes.check_now(self.get_object(), mine.values("pk"), seconds)
        return Response(status.model_dump(mode="json"))

    @extend_schema(request=None, responses={202: CheckAskedSerializer})
    @action(detail=True, methods=["post"])
    def check(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Publish a task that probes the service and registers its pipelines in the caller's projects."""
        service: ProcessingService = self.get_object()
        published = publish_for_user(
            check_processing_service, service_id=service.pk, project_ids=self._own_projects(service)
        )
        return Response(
            {"task_id": published.task_id, "queue": published.queue, "flower_url": published.flower_url}, status=202
        )

    @extend_schema(request=None, responses=ProcessingServiceStatusResponse)
    @action(detail=True, methods=["post"])
    def register_pipelines(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Probe the service and register its pipelines in those of its projects that are the caller's."""
        service: ProcessingService = self.get_object()
        with patience.seconds() as seconds:
            status = probes.check_now(service, projects_of(request, narrowed=False).values("pk"), seconds)
        try:
            made = register(service, self._own_projects(service), status.pipeline_configs)
        except RegistrationRefused as error:
            raise ValidationError({error.field: [str(error)]}) from error
        if made.not_applied and not status.error:
            status = status.model_copy(update={"error": " ".join(made.not_applied)[:MAX_ERROR_CHARACTERS]})
        return Response(status.model_dump(mode="json"))

    def _own_projects(self, service: ProcessingService) -> list[int]:
        mine = projects_of(self.request, narrowed=False).values("pk")
        linked = ProcessingService.projects.through.objects.filter(processingservice=service, project__in=mine)
        return sorted(linked.values_list("project_id", flat=True))
