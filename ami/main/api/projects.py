"""Projects in the API."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, viewsets

from ami.main.api.lists import ProjectScoped, parameters, words
from ami.main.models import Project
from ami.main.models.projects import default_feature_flags
from ami.main.permissions import OWNER


class ProjectSerializer(serializers.ModelSerializer[Project]):
    """A project and its settings; its creator is its owner."""

    class Meta:
        model = Project
        fields = (
            "id",
            "name",
            "description",
            "owner",
            "draft",
            "active",
            "feature_flags",
            "session_time_gap_seconds",
            "default_filters_score_threshold",
            "default_processing_pipeline",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("owner",)
        extra_kwargs = {"description": {"max_length": 10_000}}

    def validate_default_processing_pipeline(self, pipeline: Any) -> Any:
        """Accept a pipeline that the project uses; any other gives the error of an unknown key."""
        if pipeline is None:
            return pipeline
        own = self.instance is not None and pipeline.project_id in (None, self.instance.pk)
        if own and pipeline.project_configs.filter(project=self.instance).exists():
            return pipeline
        raise serializers.ValidationError(f'Invalid pk "{pipeline.pk}" - object does not exist.')

    def validate_feature_flags(self, flags: Any) -> dict[str, bool]:
        """Accept known boolean flags; a missing one gets its default."""
        known = default_feature_flags()
        if not isinstance(flags, dict):
            raise serializers.ValidationError("Must be an object of flags.")
        for flag, value in flags.items():
            if flag not in known or not isinstance(value, bool):
                raise serializers.ValidationError(f"'{flag[:50]}' must be one of {', '.join(known)}, true or false.")
        return {**known, **flags}


FILTERS = {"name": ("name__icontains", words)}


@extend_schema_view(list=extend_schema(parameters=parameters(FILTERS)))
class ProjectViewSet(ProjectScoped, viewsets.ModelViewSet[Project]):
    """The projects that the caller owns or is a member of; only an owner changes settings or deletes."""

    queryset = Project.objects.select_related("owner")
    serializer_class = ProjectSerializer
    project_lookup = "pk"
    filters = FILTERS
    roles = {"update": OWNER, "partial_update": OWNER, "destroy": OWNER}

    def perform_create(self, serializer: Any) -> None:
        serializer.save(owner=self.request.user)
