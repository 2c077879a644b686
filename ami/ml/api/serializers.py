"""Pipelines, algorithms and services as JSON."""

from typing import Any
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction
from rest_framework import serializers

from ami.main.models import Project
from ami.main.permissions import visible_projects
from ami.main.services import outbound
from ami.ml.models import Algorithm, Pipeline, ProcessingService
from ami.queues.redaction import redact

TAKEN = "The project already has a processing service of this name."


class AlgorithmSerializer(serializers.ModelSerializer[Algorithm]):
    """An algorithm; without a project it is in the shared catalogue."""

    class Meta:
        model = Algorithm
        fields = (
            "id",
            "project",
            "name",
            "key",
            "version",
            "version_name",
            "description",
            "task_type",
            "uri",
            "category_map",
        )


class PipelineSerializer(serializers.ModelSerializer[Pipeline]):
    """A pipeline with its algorithms; without a project it is in the shared catalogue."""

    algorithms = AlgorithmSerializer(many=True, read_only=True)

    class Meta:
        model = Pipeline
        fields = (
            "id",
            "project",
            "name",
            "slug",
            "version",
            "description",
            "stages",
            "default_config",
            "algorithms",
        )


class ProcessingServiceSerializer(serializers.ModelSerializer[ProcessingService]):
    """A processing service; without an address it is a pull service."""

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
            "failing_since",
            "state",
            "created_at",
        )
        read_only_fields = (
            "projects",
            "pipelines",
            "last_seen",
            "last_seen_live",
            "last_seen_latency",
            "failing_since",
            "state",
        )
        extra_kwargs = {"description": {"max_length": 10_000}}
        # validate() checks the name; the messages of the model's constraints would reveal other projects' rows.
        validators: list[Any] = []

    def get_fields(self) -> dict[str, Any]:
        """Limit ``project`` to the caller's projects."""
        fields = super().get_fields()
        request = self.context.get("request")
        if request is not None and request.user.is_authenticated:
            fields["project"].queryset = visible_projects(request)  # type: ignore[attr-defined]
        return fields

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ProcessingService.objects.filter(project=attrs["project"], name=attrs["name"]).exists():
            raise serializers.ValidationError({"name": [TAKEN]})
        return attrs

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
        if reason := outbound.refusal(url):
            raise serializers.ValidationError(reason)
        return url

    def create(self, validated_data: dict[str, Any]) -> ProcessingService:
        try:
            with transaction.atomic():
                service = ProcessingService.objects.create(**validated_data)
        except IntegrityError as error:
            raise serializers.ValidationError({"name": [TAKEN]}) from error
        service.projects.add(validated_data["project"])
        return service
