"""Exports in the API."""

import logging
from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import BaseRouter

from ami.exports.models import DataExport
from ami.exports.services import files
from ami.exports.services.filters import FilterError
from ami.exports.services.formats import choices
from ami.exports.services.requests import request_export
from ami.jobs.services.progress import progress
from ami.main.api.errors import Conflict
from ami.main.api.fields import OwnProjectField
from ami.main.api.file_fields import base_of
from ami.main.api.files import FileLinks, file_action, file_response
from ami.main.api.lists import ProjectScoped, parameters, whole_number, words
from ami.main.permissions import MEMBER

logger = logging.getLogger(__name__)


class ExportSerializer(serializers.ModelSerializer[DataExport]):
    """An export; its job sets ``record_count`` and ``file_url``."""

    project = OwnProjectField()
    format = serializers.ChoiceField(choices=choices())
    filters = serializers.JSONField(required=False, default=dict)
    job = serializers.SerializerMethodField()
    file_url = serializers.SerializerMethodField()

    class Meta:
        model = DataExport
        fields = (
            "id",
            "user",
            "project",
            "format",
            "filters",
            "filters_display",
            "job",
            "file_url",
            "record_count",
            "file_size",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("user", "filters_display", "record_count", "file_size")

    def validate_filters(self, filters: Any) -> dict[str, Any]:
        # Which filters are valid depends on the project: `create` checks them.
        if not isinstance(filters, dict):
            raise serializers.ValidationError("Must be an object.")
        return filters

    def get_file_url(self, export: DataExport) -> str:
        """Return a newly signed link, which needs no token; empty until there is a file."""
        return files.signed_url(export, base_of(self.context["request"]))

    @extend_schema_field(
        {
            "type": "object",
            "nullable": True,
            "properties": {
                "id": {"type": "integer"},
                "name": {"type": "string"},
                "project": {"type": "integer"},
                "progress": {"type": "object"},
                "result": {"type": "object", "nullable": True},
            },
        }
    )
    def get_job(self, export: DataExport) -> dict[str, Any] | None:
        """Return the job that writes the file, None for a scheduled export."""
        job = export.job
        if job is None:
            return None
        return {
            "id": job.pk,
            "name": job.name,
            "project": job.project_id,
            "progress": progress(job),
            "result": job.result,
        }


FILTERS = {"project": ("project_id", whole_number), "format": ("format", words)}


@extend_schema_view(list=extend_schema(parameters=parameters(FILTERS)))
class ExportViewSet(
    FileLinks,
    ProjectScoped,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.ListModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[DataExport],
):
    """The exports of the caller's projects; deleting one deletes its file."""

    queryset = DataExport.objects.select_related("project", "job", "user")
    serializer_class = ExportSerializer
    filters = FILTERS
    roles = {"destroy": MEMBER}

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # noqa: ARG002
        """Create the export and the job that writes it."""
        body = self.get_serializer(data=request.data)
        body.is_valid(raise_exception=True)
        values = body.validated_data
        try:
            export, _ = request_export(values["project"], request.user, values["format"], values["filters"])
        except FilterError as error:
            raise serializers.ValidationError({"filters": {error.field[:100]: [error.message]}}) from error
        return Response(self.get_serializer(export).data, status=status.HTTP_201_CREATED)

    @file_action("text/csv", "application/json")
    def file(self, request: Request, pk: str | None = None) -> HttpResponseBase:  # noqa: ARG002
        """Download the file, as a member of the project or by a signed link; 409 until it is written."""
        export: DataExport = self.get_object()
        if not export.file_path:
            raise Conflict("This export is not written yet. Its job shows the progress.")
        response = file_response(request, files.download(export))
        if request.method == "GET":
            user = str(request.user) if request.user.pk else "a signed link"
            logger.info("Export downloaded", extra={"export": export.pk, "user": user})
        return response


def register(router: BaseRouter) -> None:
    """Register the exports' view."""
    router.register("exports", ExportViewSet, basename="export")


urlpatterns: list[Any] = []
