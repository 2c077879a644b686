"""Stations and their sessions in the API."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.fields import OwnProjectField, belongs_to
from ami.main.api.lists import ProjectScoped, moment, parameters, whole_number, words
from ami.main.api.published_jobs import PublishedJobSerializer, accepted_response, published_job
from ami.main.models import Deployment, Event, Project
from ami.main.services import path_patterns, time_formats
from ami.main.services.job_port import start_job
from ami.main.services.paths import problem_of

MAX_SYNCED_AT_ONCE = 500

COUNTS = ("captures_count", "detections_count", "occurrences_count", "calculated_fields_updated_at")


class DeploymentSerializer(serializers.ModelSerializer[Deployment]):
    """A station; its counts are updated within seconds (`calculated_fields_updated_at`)."""

    project = OwnProjectField()

    class Meta:
        model = Deployment
        fields = (
            "id",
            "name",
            "description",
            "project",
            "research_site",
            "device",
            "latitude",
            "longitude",
            "time_zone",
            "data_source",
            "data_source_subdir",
            "data_source_regex",
            "data_source_time_format",
            "data_source_total_files",
            "data_source_total_size",
            "data_source_last_checked",
            "events_count",
            "taxa_count",
            "first_capture_timestamp",
            "last_capture_timestamp",
            *COUNTS,
            "created_at",
            "updated_at",
        )
        read_only_fields = ("events_count", "taxa_count", *COUNTS)
        extra_kwargs = {"description": {"max_length": 10_000}}

    def validate_project(self, project: Project) -> Project:
        if self.instance is not None and self.instance.project_id != project.pk:
            raise serializers.ValidationError("A station cannot move to another project.")
        return project

    def validate_data_source_regex(self, pattern: str) -> str:
        if problem := path_patterns.problem_of(pattern):
            raise serializers.ValidationError(problem)
        return pattern

    def validate_data_source_time_format(self, form: str) -> str:
        if problem := time_formats.problem_of(form):
            raise serializers.ValidationError(problem)
        return form

    def validate_data_source_subdir(self, path: str) -> str:
        """Accept a folder below the prefix of the storage source."""
        if problem := problem_of(path):
            raise serializers.ValidationError(problem)
        return path

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Accept only a site, a device and a storage source of the same project."""
        project = attrs.get("project") or getattr(self.instance, "project", None)
        for field in ("research_site", "device", "data_source"):
            belongs_to(project, field, attrs.get(field))
        return attrs


class SyncAllSerializer(serializers.Serializer[Any]):
    """The project whose stations to sync."""

    project = OwnProjectField()


FILTERS = {"project": ("project_id", whole_number), "name": ("name__icontains", words)}


@extend_schema_view(list=extend_schema(parameters=parameters(FILTERS)))
class DeploymentViewSet(ProjectScoped, viewsets.ModelViewSet[Deployment]):
    """The stations of the caller's projects."""

    queryset = Deployment.objects.select_related("project", "data_source")
    serializer_class = DeploymentSerializer
    filters = FILTERS

    @extend_schema(request=None, responses={202: PublishedJobSerializer})
    @action(detail=True, methods=["post"])
    def sync(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Sync the station's captures with its storage source, then group them into sessions."""
        station: Deployment = self.get_object()
        if station.data_source_id is None:
            raise serializers.ValidationError({"data_source": ["The station has no storage source; choose one."]})
        return accepted_response(*enqueue_sync(station))

    @extend_schema(request=SyncAllSerializer, responses={202: PublishedJobSerializer(many=True)})
    @action(detail=False, methods=["post"], url_path="sync-all")
    def sync_all(self, request: Request) -> Response:
        """Sync every station of a project that has a storage source; one job each."""
        body = SyncAllSerializer(data=request.data, context=self.get_serializer_context())
        body.is_valid(raise_exception=True)
        stations = self.get_queryset().filter(project=body.validated_data["project"], data_source__isnull=False)
        if stations.count() > MAX_SYNCED_AT_ONCE:
            raise serializers.ValidationError(
                {"project": [f"More than {MAX_SYNCED_AT_ONCE} stations; sync them one by one."]}
            )
        return Response([published_job(*enqueue_sync(station)) for station in stations.order_by("pk")], status=202)

    @extend_schema(request=None, responses={202: PublishedJobSerializer})
    @action(detail=True, methods=["post"], url_path="regroup-sessions")
    def regroup_sessions(self, request: Request, pk: str | None = None) -> Response:  # noqa: ARG002
        """Regroup the station's captures into sessions."""
        station: Deployment = self.get_object()
        name = f"Group {station.name} into sessions"
        return accepted_response(*start_job("regroup_events", station.project, name=name, deployment=station))


def enqueue_sync(station: Deployment) -> Any:
    """Create and enqueue the job that syncs one station; return the job and the published task."""
    return start_job("data_storage_sync", station.project, name=f"Sync {station.name}", deployment=station)


class EventSerializer(serializers.ModelSerializer[Event]):
    """A session."""

    class Meta:
        model = Event
        fields = ("id", "project", "deployment", "group_by", "start", "end", *COUNTS)


EVENT_FILTERS = {
    "project": ("project_id", whole_number),
    "deployment": ("deployment_id", whole_number),
    "start_after": ("start__gte", moment),
    "start_before": ("start__lt", moment),
}


@extend_schema_view(list=extend_schema(parameters=parameters(EVENT_FILTERS)))
class EventViewSet(ProjectScoped, viewsets.ReadOnlyModelViewSet[Event]):
    """The sessions of the caller's projects."""

    queryset = Event.objects.select_related("project")
    serializer_class = EventSerializer
    filters = EVENT_FILTERS
