"""Pipelines, and how one project uses one."""

import copy
from typing import Any

from django.db import models

from ami.ml.errors import PipelineNotConfigured
from ami.ml.models.algorithm import DETECTION_TASK_TYPES, Algorithm


class Pipeline(models.Model):
    """A detector and its classifiers under one slug, as processing services register them."""

    name = models.CharField(max_length=255)
    slug = models.CharField(max_length=255, unique=True)
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

    class Meta:
        ordering = ["name", "version"]
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="one_pipeline_per_name_version")]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    def detector(self) -> Algorithm:
        """Return the one algorithm that draws the boxes.

        Raises:
            PipelineNotConfigured: the pipeline has none, or several (only one is supported).
        """
        detectors = list(self.algorithms.filter(task_type__in=DETECTION_TASK_TYPES)[:2])
        if len(detectors) != 1:
            many = "several detectors; one is supported" if detectors else "no detector"
            raise PipelineNotConfigured(f"Pipeline '{self.slug}' has {many}. Register it again.")
        return detectors[0]

    def config_for(self, project_id: int) -> dict[str, Any]:
        """Return the default configuration overlaid by the project's; always a new object (hazard 10)."""
        config = copy.deepcopy(self.default_config or {})
        overlay = self.project_configs.filter(project_id=project_id).values_list("config", flat=True).first()
        return {**config, **copy.deepcopy(overlay or {})}


class ProjectPipelineConfig(models.Model):
    """A project's use of a pipeline; keys of ``config`` that start with ``request_`` are for Antenna alone."""

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
