"""Pipelines, algorithms and services as JSON."""

from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from ami.main.models import Project
from ami.ml.models import Algorithm, Pipeline, ProcessingService
from ami.queues.redaction import redact


class AlgorithmSerializer(serializers.ModelSerializer[Algorithm]):
    """An algorithm."""

    class Meta:
        model = Algorithm
        fields = ("id", "name", "key", "version", "version_name", "description", "task_type", "uri", "category_map")


class PipelineSerializer(serializers.ModelSerializer[Pipeline]):
    """A pipeline with its algorithms."""

    algorithms = AlgorithmSerializer(many=True, read_only=True)

    class Meta:
        model = Pipeline
        fields = ("id", "name", "slug", "version", "description", "stages", "default_config", "algorithms")


class ProcessingServiceSerializer(serializers.ModelSerializer[ProcessingService]):
    """A processing service; without an address it pulls its work."""

    project = serializers.PrimaryKeyRelatedField(queryset=Project.objects.none(), write_only=True)

    class Meta:
        model = ProcessingService
        fields = (
            "id",
            "name",
            "description",
            "endpoint_url",
            "project",
            "projects",
            "pipelines",
            "last_seen",
            "last_seen_live",
            "last_seen_latency",
            "created_at",
        )
        read_only_fields = ("projects", "pipelines", "last_seen", "last_seen_live", "last_seen_latency")
        extra_kwargs = {"description": {"max_length": 10_000}}

    def get_fields(self) -> dict[str, Any]:
        """Offer the caller's own projects."""
        fields = super().get_fields()
        request = self.context.get("request")
        if request is not None and request.user.is_authenticated:
            fields["project"].queryset = Project.objects.visible_to(request.user)  # type: ignore[attr-defined]
        return fields

    def to_representation(self, instance: ProcessingService) -> dict[str, Any]:
        """Mask the password in an address that has one."""
        shown: dict[str, Any] = super().to_representation(instance)
        return {**shown, "endpoint_url": redact(shown["endpoint_url"])}

    def validate_endpoint_url(self, url: str | None) -> str | None:
        """Accept an http or https address."""
        if not url:
            return None
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise serializers.ValidationError("Must be an http or https address.")
        return url

    def create(self, validated_data: dict[str, Any]) -> ProcessingService:
        """Create the service in its project."""
        project = validated_data.pop("project")
        service: ProcessingService = super().create(validated_data)
        service.projects.add(project)
        return service
