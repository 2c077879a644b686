"""Further names of a project's pipelines and algorithms: what services register with a known name and version."""

from django.db import models

from ami.ml.models.algorithm import Algorithm
from ami.ml.models.pipeline import Pipeline
from ami.ml.models.service import ProcessingService


class PipelineAlias(models.Model):
    """A slug by which some services call a pipeline that has another one."""

    project = models.ForeignKey("main.Project", on_delete=models.CASCADE, related_name="+")
    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="aliases")
    slug = models.CharField(max_length=255, db_index=True)
    services = models.ManyToManyField(
        ProcessingService, blank=True, related_name="+", help_text="they know the pipeline by this slug only"
    )

    class Meta:
        ordering = ["slug"]
        verbose_name_plural = "pipeline aliases"
        constraints = [models.UniqueConstraint(fields=["project", "slug"], name="one_pipeline_alias_per_project_slug")]

    def __str__(self) -> str:
        return self.slug


class AlgorithmAlias(models.Model):
    """A key by which some services call an algorithm that has another one."""

    project = models.ForeignKey("main.Project", on_delete=models.CASCADE, related_name="+")
    algorithm = models.ForeignKey(Algorithm, on_delete=models.CASCADE, related_name="aliases")
    key = models.CharField(max_length=255, db_index=True)

    class Meta:
        ordering = ["key"]
        verbose_name_plural = "algorithm aliases"
        constraints = [models.UniqueConstraint(fields=["project", "key"], name="one_algorithm_alias_per_project_key")]

    def __str__(self) -> str:
        return self.key
