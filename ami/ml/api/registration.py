"""The endpoint where a pull worker registers its pipelines."""

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ami.main.api.parameters import KnownParameters
from ami.main.models import Project
from ami.main.permissions import visible_projects
from ami.ml.api.bodies import read
from ami.ml.api.serializers import PipelineSerializer
from ami.ml.models import Pipeline
from ami.ml.schemas import AsyncPipelineRegistrationRequest, PipelineRegistrationResponse
from ami.ml.services.registration import MAX_ERROR_CHARACTERS, RegistrationRefused, register_pull_service

MAX_BODY_BYTES = 64 * 1024**2


class ProjectPipelinesView(KnownParameters, APIView):
    """The pipelines of a project."""

    permission_classes = (IsAuthenticated,)

    def admits_worker(self, request: Request) -> bool:  # noqa: ARG002
        """Admit workers: they register their pipelines."""
        return True

    @extend_schema(responses=PipelineSerializer(many=True), operation_id="project_pipelines_list")
    def get(self, request: Request, project_id: int) -> Response:
        """List the pipelines that the project uses."""
        project = _project(request, project_id)
        pipelines = Pipeline.objects.used_in([project.pk]).prefetch_related("algorithms")
        return Response(PipelineSerializer(pipelines, many=True).data)

    @extend_schema(
        request=AsyncPipelineRegistrationRequest,
        responses={201: PipelineRegistrationResponse},
        operation_id="project_pipelines_register",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Register a pull service with its pipelines and mark it seen.

        Only rows of this project are written. ``error`` lists the parts that were not applied.
        """
        project = _project(request, project_id)
        wanted = read(request, AsyncPipelineRegistrationRequest, MAX_BODY_BYTES)
        try:
            made = register_pull_service(wanted.processing_service_name, project.pk, wanted.pipelines)
        except RegistrationRefused as error:
            raise ValidationError({error.field: [str(error)]}) from error
        answer = PipelineRegistrationResponse(
            timestamp=timezone.now(),
            success=True,
            pipelines=wanted.pipelines,
            pipelines_created=made.pipelines_created,
            algorithms_created=made.algorithms_created,
            error=" ".join(made.not_applied)[:MAX_ERROR_CHARACTERS] or None,
        )
        return Response(answer.model_dump(mode="json"), status=status.HTTP_201_CREATED)


def _project(request: Request, project_id: int) -> Project:
    return get_object_or_404(visible_projects(request), pk=project_id)
