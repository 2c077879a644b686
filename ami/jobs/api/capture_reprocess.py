"""The endpoint that runs a pipeline over one capture again."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ami.jobs.services import operations
from ami.jobs.services.reprocess_jobs import pipeline_for
from ami.main.api.parameters import KnownParameters
from ami.main.api.published_jobs import PublishedJobSerializer, accepted_response
from ami.main.models import Project, SourceImage
from ami.main.permissions import visible_projects
from ami.ml.models import Pipeline


class ReprocessCaptureView(KnownParameters, APIView):
    """Runs a pipeline over one capture."""

    permission_classes = (IsAuthenticated,)

    @extend_schema(request=None, responses={202: PublishedJobSerializer}, operation_id="capture_reprocess")
    def post(self, request: Request, capture_id: int) -> Response:
        """Create and start a job for this capture, with ``{"pipeline": id}`` or the project's default pipeline."""
        visible = visible_projects(request).order_by().values("pk")
        capture = get_object_or_404(SourceImage.objects.select_related("project"), pk=capture_id, project__in=visible)
        job, published = operations.create_and_enqueue(
            "ml",
            capture.project,
            name=f"Reprocess {capture.path}",
            pipeline=_pipeline(request, capture.project),
            source_image_single=capture,
            deployment_id=capture.deployment_id,
        )
        return accepted_response(job, published)


def _pipeline(request: Request, project: Project) -> Pipeline:
    wanted: Any = request.data.get("pipeline") if isinstance(request.data, dict) else None
    if wanted is None:
        if (default := pipeline_for(project)) is not None:
            return default
        raise ValidationError({"pipeline": ["The project has no pipeline; register one."]})
    enabled = Pipeline.objects.enabled_for(project.pk)
    pipeline = enabled.filter(pk=wanted).first() if type(wanted) is int and 0 < wanted < 2**63 else None
    if pipeline is None:
        raise ValidationError({"pipeline": [f"Invalid pk '{str(wanted)[:50]}': not enabled for this project."]})
    return pipeline
