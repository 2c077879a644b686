"""Pipelines, owned by a project or shared, and their configuration per project."""

import copy
from collections.abc import Collection, Iterable
from typing import Any, Protocol, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, When

from ami.ml.errors import PipelineNotConfigured
from ami.ml.models.algorithm import DETECTION_TASK_TYPES, SHARED_IF_NULL, Algorithm, one_per_project


class HasTaskType(Protocol):
    """An `Algorithm`, or a part of its columns."""

    @property
    def task_type(self) -> str: ...


Step = TypeVar("Step", bound=HasTaskType)


class PipelineQuerySet(models.QuerySet["Pipeline"]):
    """Queries for pipelines by project."""

    def used_in(self, projects: QuerySet[Any] | Collection[int]) -> "PipelineQuerySet":
        """Return the projects' own pipelines and the shared ones that staff enabled for one of them."""
        enabled = ProjectPipelineConfig.objects.filter(pipeline=OuterRef("pk"), project__in=projects, enabled=True)
        return self.filter(Q(project__in=projects) | Q(Exists(enabled), project=None))

    def enabled_for(self, project_id: int) -> "PipelineQuerySet":
        """Return the enabled pipelines of the project, own and shared; an own row hides a shared one of its names."""
        enabled = ProjectPipelineConfig.objects.filter(pipeline=OuterRef("pk"), project=project_id, enabled=True)
        same = Q(slug=OuterRef("slug")) | Q(aliases__slug=OuterRef("slug"))
        own = Pipeline.objects.filter(same, project=project_id)
        return self.filter(Exists(enabled), Q(project=project_id) | Q(~Exists(own), project=None))

    def named(self, slugs: Collection[str]) -> "PipelineQuerySet":
        """Return the pipelines with one of these slugs, as their own or as an alias; one may be there twice."""
        return self.filter(Q(slug__in=slugs) | Q(aliases__slug__in=slugs))

    def for_project(self, project_id: int, slug: str) -> "Pipeline | None":
        """Return the project's own pipeline of this slug, else the shared one that staff enabled for the project.

        An alias of an own pipeline comes before the slug of a shared one.
        """
        found = self.used_in([project_id]).named([slug])
        its_own = Case(When(slug=slug, then=0), default=1)
        return found.order_by(F("project").asc(nulls_last=True), its_own).first()


class Pipeline(models.Model):
    """A detector and its classifiers under one slug, as processing services register them."""

    project = models.ForeignKey(
        "main.Project",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="own_pipelines",
        help_text=SHARED_IF_NULL,
    )
    name = models.CharField(max_length=255)
    slug = models.CharField(max_length=255, db_index=True)
    version = models.IntegerField(default=1)
    description = models.TextField(blank=True)
    stages = models.JSONField(default=list, blank=True)
    default_config = models.JSONField(default=dict, blank=True)
    algorithms = models.ManyToManyField(Algorithm, blank=True, related_name="pipelines")
    projects = models.ManyToManyField(
        "main.Project", through="ProjectPipelineConfig", blank=True, related_name="pipelines"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = PipelineQuerySet.as_manager()

    class Meta:
        ordering = ["name", "version"]
        constraints = [
            *one_per_project("pipeline", "slug"),
            *one_per_project("pipeline", "name", "version"),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    def detector_of(self, steps: Iterable[Step]) -> Step:
        """Return the one detector among the pipeline's algorithms, or what has their ``task_type``.

        Raises:
            PipelineNotConfigured: the pipeline has none, or several (only one is supported).
        """
        detectors = [step for step in steps if step.task_type in DETECTION_TASK_TYPES]
        if len(detectors) != 1:
            many = "several detectors; one is supported" if detectors else "no detector"
            raise PipelineNotConfigured(f"Pipeline '{self.slug}' has {many}. Register it again.")
        return detectors[0]

    def slugs(self) -> list[str]:
        """Return the slug and the aliases."""
        return [self.slug, *self.aliases.values_list("slug", flat=True)]

    def algorithm_keys(self) -> list[str]:
        """Return the keys of its algorithms with their aliases, sorted, in one query."""
        rows = self.algorithms.order_by().values_list("key", "aliases__key")
        return sorted({key for row in rows for key in row if key})

    def config_for(self, project_id: int) -> dict[str, Any]:
        """Return the default configuration overlaid by the project's; always a new object (hazard 10).

        A job that began on a shared pipeline uses the configuration that has moved to the project's own row.
        """
        config = copy.deepcopy(self.default_config or {})
        own = Pipeline.objects.filter(project=project_id).named([self.slug])
        same = Q(pipeline=self) | Q(pipeline__in=own.values("pk"))
        overlays = ProjectPipelineConfig.objects.filter(same, project=project_id).order_by(
            F("pipeline__project").asc(nulls_last=True)
        )
        overlay = overlays.values_list("config", flat=True).first()
        return {**config, **copy.deepcopy(overlay or {})}

    def task_config(self, project_id: int) -> dict[str, Any]:
        """Return the part of the configuration that a service receives."""
        return for_service(self.config_for(project_id))


def for_service(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without the keys for Antenna."""
    return {key: value for key, value in config.items() if not key.startswith("request_")}


class ProjectPipelineConfig(models.Model):
    """A project's use of a pipeline; ``config`` keys that start with ``request_`` are not sent to services."""

    project = models.ForeignKey("main.Project", on_delete=models.CASCADE, related_name="pipeline_configs")
    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="project_configs")
    enabled = models.BooleanField(default=True)
    config = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pipeline", "project"], name="one_config_per_pipeline_project")]

    def __str__(self) -> str:
        return f"pipeline {self.pipeline_id} in project {self.project_id}"

    def clean(self) -> None:
        """Refuse another project's own pipeline.

        Raises:
            django.core.exceptions.ValidationError: on ``project``.
        """
        if self.pipeline_id and self.pipeline.project_id not in (None, self.project_id):
            raise ValidationError({"project": "The pipeline belongs to another project; share it first."})
