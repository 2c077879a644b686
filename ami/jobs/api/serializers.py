"""Serializers of jobs and their logs."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ami.jobs.models import Job, JobLog
from ami.jobs.services.job_kinds import registered_keys
from ami.jobs.services.progress import progress
from ami.main.api.fields import OwnProjectField, belongs_to
from ami.main.api.parameters import project_asked
from ami.ml.models import Pipeline
from ami.ml.services.post_processing.configs import ConfigRefused, config_of

DEFAULT_LOGS = 1000
MOST_LOGS = 5000
MOST_IMAGES = 10_000

#: Keys of rows that other apps create for their jobs; a user who could set them would reach other projects' rows.
OWNED_PARAMS = ("export_id", "deletion_id")


#: What clients of the origin write with ``_id``.
RELATIONS = ("project", "deployment", "pipeline", "source_image_collection", "source_image_single")


class JobLogSerializer(serializers.ModelSerializer[JobLog]):
    """One line of a job's log."""

    class Meta:
        model = JobLog
        fields = ("id", "level", "message", "context", "created_at")


class JobSerializer(serializers.ModelSerializer[Job]):
    """A job with its progress; its status changes through actions, not by writing fields."""

    project = OwnProjectField()
    pipeline_slug = serializers.CharField(source="pipeline.slug", read_only=True, default=None)
    progress = serializers.SerializerMethodField()
    params = serializers.JSONField(required=False, default=dict)

    class Meta:
        model = Job
        fields = (
            "id",
            "name",
            "project",
            "job_type_key",
            "status",
            "dispatch_mode",
            "progress",
            "task_id",
            "pipeline",
            "pipeline_slug",
            "deployment",
            "source_image_collection",
            "source_image_single",
            "delay",
            "limit",
            "shuffle",
            "params",
            "result",
            "scheduled_at",
            "started_at",
            "finished_at",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("status", "dispatch_mode", "task_id", "result", "scheduled_at", "started_at", "finished_at")
        extra_kwargs = {
            "delay": {"max_value": 7 * 24 * 3600},
            "limit": {"min_value": 1, "max_value": 2_000_000_000},
            "job_type_key": {"default": "ml"},
        }

    def to_internal_value(self, data: Any) -> Any:
        """Read `project_id` and the like as the origin's clients write them; a project may be in the query instead.

        Raises:
            rest_framework.exceptions.ValidationError: a relation is named twice, differently.
        """
        if isinstance(data, dict):
            data = dict(data)
            for name in RELATIONS:
                if (other := data.pop(f"{name}_id", None)) is None:
                    continue
                if data.get(name, other) != other:
                    raise serializers.ValidationError({f"{name}_id": [f"Differs from {name}."]})
                data[name] = other
            asked = project_asked(self.context["request"]) if self.instance is None else None
            data |= {"project": asked} if asked and data.get("project") is None else {}
        return super().to_internal_value(data)

    @extend_schema_field({"type": "object"})
    def get_progress(self, job: Job) -> dict[str, Any]:
        """Return the derived progress; a list computes it for all jobs in one query and passes it in ``context``."""
        computed = self.context.get("progress") or {}
        return computed.get(job.pk) or progress(job)

    def validate_job_type_key(self, key: str) -> str:
        if key not in registered_keys():
            raise serializers.ValidationError(f"Choose one of {', '.join(registered_keys())}.")
        return key

    def validate_params(self, params: Any) -> dict[str, Any]:
        """Accept an object, and a bounded list of captures in it."""
        if not isinstance(params, dict):
            raise serializers.ValidationError("Must be an object.")
        before = self.instance.params if isinstance(self.instance, Job) else {}
        for name in OWNED_PARAMS:
            if params.get(name) != before.get(name):
                raise serializers.ValidationError(
                    f"{name} is set by the system; request an export or a deletion instead."
                )
        ids = params.get("source_image_ids", [])
        whole = isinstance(ids, list) and all(type(pk) is int and 0 < pk < 2**63 for pk in ids)
        if not whole or len(ids) > MOST_IMAGES:
            raise serializers.ValidationError(f"source_image_ids must be at most {MOST_IMAGES} primary keys.")
        return params

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require related rows of the job's project, and for an ml job a pipeline that the project may run."""
        if self.instance is not None:
            self._keep_fixed(attrs)
        project = attrs.get("project") or (self.instance.project if self.instance else None)
        for field in ("deployment", "source_image_collection", "source_image_single"):
            belongs_to(project, field, attrs.get(field))
        pipeline: Pipeline | None = attrs.get("pipeline")
        if self.instance is None and attrs.get("job_type_key", "ml") == "ml" and pipeline is None:
            raise serializers.ValidationError({"pipeline": ["An ml job needs a pipeline."]})
        if self.instance is None and attrs.get("job_type_key") == "post_processing":
            try:
                config_of(attrs.get("params"), project.pk)
            except ConfigRefused as error:
                raise serializers.ValidationError({"params": [str(error)]}) from error
        kept = self.instance is not None and pipeline == self.instance.pipeline
        if pipeline and project and not kept and not _may_run(project.pk, pipeline):
            # The message for a missing key, so that it does not reveal other projects' pipelines.
            raise serializers.ValidationError({"pipeline": [f'Invalid pk "{pipeline.pk}" - object does not exist.']})
        return attrs

    def _keep_fixed(self, attrs: dict[str, Any]) -> None:
        for field in ("project", "job_type_key"):
            if field in attrs and attrs[field] != getattr(self.instance, field):
                raise serializers.ValidationError({field: ["Cannot be changed."]})


def _may_run(project_id: int, pipeline: Pipeline) -> bool:
    return Pipeline.objects.enabled_for(project_id).filter(pk=pipeline.pk).exists()


class JobDetailSerializer(JobSerializer):
    """A job with its newest log lines."""

    logs = serializers.SerializerMethodField()

    class Meta(JobSerializer.Meta):
        fields = (*JobSerializer.Meta.fields, "logs")

    @extend_schema_field(JobLogSerializer(many=True))
    def get_logs(self, job: Job) -> list[dict[str, Any]]:
        """Return the newest lines, newest first."""
        lines = JobLog.objects.filter(job=job)[: self.context.get("logs_limit", DEFAULT_LOGS)]
        return list(JobLogSerializer(lines, many=True).data)


class JobReferenceSerializer(serializers.Serializer[Any]):
    """A job that has work for pull workers."""

    id = serializers.IntegerField()
    pipeline_slug = serializers.CharField(allow_null=True)
