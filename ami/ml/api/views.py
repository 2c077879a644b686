"""Pipelines and processing services for people."""

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.lists import BoundedPagination
from ami.main.models import Project
from ami.ml import probing
from ami.ml.api.serializers import AlgorithmSerializer, PipelineSerializer, ProcessingServiceSerializer
from ami.ml.models import Algorithm, Pipeline, ProcessingService, ProjectPipelineConfig
from ami.ml.registration import RegistrationRefused, register
from ami.ml.schemas import ProcessingServiceStatusResponse
from ami.ml.tasks import check_processing_service
from ami.queues.asking import ask


class CheckAskedSerializer(serializers.Serializer[Any]):
    """The task that a request became."""

    task_id = serializers.CharField()
    queue = serializers.CharField()
    flower_url = serializers.CharField(allow_null=True)


class AlgorithmViewSet(viewsets.ReadOnlyModelViewSet[Algorithm]):
    """Every registered algorithm."""

    queryset = Algorithm.objects.all()
    serializer_class = AlgorithmSerializer
    permission_classes = (IsAuthenticated,)
    pagination_class = BoundedPagination
    lookup_value_regex = r"\d{1,18}"


class PipelineViewSet(viewsets.ReadOnlyModelViewSet[Pipeline]):
    """The pipelines that the caller's projects use."""

    queryset = Pipeline.objects.prefetch_related("algorithms")
    serializer_class = PipelineSerializer
    permission_classes = (IsAuthenticated,)
    pagination_class = BoundedPagination
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Pipeline]:
        """Return pipelines of visible projects; a superuser sees all."""
        pipelines = super().get_queryset()
        if self.request.user.is_superuser:
            return pipelines
        mine = Project.objects.visible_to(self.request.user).order_by().values("pk")
        used = ProjectPipelineConfig.objects.filter(pipeline=OuterRef("pk"), project__in=mine)
        return pipelines.filter(Exists(used))


class ProcessingServiceViewSet(
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.ListModelMixin,
    viewsets.GenericViewSet[ProcessingService],
):
    """The processing services of the caller's projects."""

    queryset = ProcessingService.objects.prefetch_related("projects", "pipelines")
    serializer_class = ProcessingServiceSerializer
    permission_classes = (IsAuthenticated,)
    pagination_class = BoundedPagination
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[ProcessingService]:
        """Return services of visible projects; a superuser sees all."""
        services = super().get_queryset()
        if self.request.user.is_superuser:
            return services
        mine = Project.objects.visible_to(self.request.user).order_by().values("pk")
        linked = ProcessingService.projects.through.objects.filter(processingservice=OuterRef("pk"), project__in=mine)
        return services.filter(Exists(linked))

    def perform_create(self, serializer: Any) -> None:
        """Create the service for a member of the project; an address is an operator's to give.

        The server itself calls that address, so whoever may set it can reach what only the server reaches.
        """
        if serializer.validated_data.get("endpoint_url") and not self.request.user.is_staff:
            raise PermissionDenied("Only staff may register a service with an address; leave endpoint_url empty.")
        serializer.save()

    @extend_schema(responses=ProcessingServiceStatusResponse)
    @action(detail=True, methods=["get"])
    def status(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Ask the service now whether it lives and what it runs."""
        return Response(probing.check_now(self.get_object()).model_dump(mode="json"))

    @extend_schema(request=None, responses={202: CheckAskedSerializer})
    @action(detail=True, methods=["post"])
    def check(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Have a worker ask the service and register its pipelines."""
        asked = ask(check_processing_service, service_id=self.get_object().pk)
        return Response({"task_id": asked.task_id, "queue": asked.queue, "flower_url": asked.flower_url}, status=202)

    @extend_schema(request=None, responses=ProcessingServiceStatusResponse)
    @action(detail=True, methods=["post"])
    def register_pipelines(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Ask the service what it runs and register it for the service's projects."""
        service: ProcessingService = self.get_object()
        status = probing.check_now(service)
        try:
            register(service, list(service.projects.values_list("pk", flat=True)), status.pipeline_configs)
        except RegistrationRefused as error:
            raise ValidationError({error.field: [str(error)]}) from error
        return Response(status.model_dump(mode="json"))
