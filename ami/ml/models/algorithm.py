"""Algorithms (detectors and classifiers) and their category maps, owned by a project or shared."""

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet

DETECTION_TASK_TYPES = ("detection", "localization", "segmentation")
CLASSIFICATION_TASK_TYPES = ("classification", "tagging")

SHARED_IF_NULL = "the project it belongs to; empty: the shared catalogue, which only staff change"


def one_per_project(what: str, *fields: str) -> list[models.UniqueConstraint]:
    """Return two constraints: unique within each project, and unique within the shared catalogue (no project).

    Two, because NULLs are not equal in a unique constraint.
    """
    name = f"one_{what}_per_{{}}_{'_'.join(fields)}"
    own, shared = Q(project__isnull=False), Q(project__isnull=True)
    return [
        models.UniqueConstraint(fields=["project", *fields], condition=own, name=name.format("project")),
        models.UniqueConstraint(fields=fields, condition=shared, name=name.format("shared")),
    ]


class AlgorithmCategoryMap(models.Model):
    """The classes of a classifier; ``scores[i]`` of its classifications belongs to ``labels[i]``.

    A registration reuses an equal map of its own project and never changes one, because stored scores refer to it.
    """

    project = models.ForeignKey(
        "main.Project",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="category_maps",
        help_text=SHARED_IF_NULL,
    )
    data = models.JSONField(default=list, blank=True)
    labels = models.JSONField(default=list, blank=True)
    labels_hash = models.CharField(max_length=64, db_index=True, editable=False)
    version = models.CharField(max_length=255, blank=True)
    description = models.TextField(blank=True)
    uri = models.CharField(max_length=8192, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"{len(self.labels)} classes {self.version}".strip()

    def save(self, *args: object, **kwargs: object) -> None:
        self.labels_hash = self.hash_labels(self.labels)
        super().save(*args, **kwargs)  # type: ignore[arg-type]

    @staticmethod
    def hash_labels(labels: Sequence[str]) -> str:
        """Return the SHA-256 by which an equal list of labels is found."""
        return hashlib.sha256(json.dumps(list(labels)).encode()).hexdigest()


class AlgorithmQuerySet(models.QuerySet["Algorithm"]):
    """Queries for algorithms by project."""

    def used_in(self, projects: QuerySet[Any] | Collection[int]) -> "AlgorithmQuerySet":
        """Return the projects' own algorithms and the shared ones of pipelines enabled for these projects."""
        enabled = (
            apps.get_model("ml", "ProjectPipelineConfig")
            .objects.filter(project__in=projects, enabled=True)
            .values("pipeline_id")
        )
        steps = Algorithm.pipelines.through.objects.filter(algorithm=OuterRef("pk"), pipeline__in=enabled)
        return self.filter(Q(project__in=projects) | Q(Exists(steps), project=None))


class Algorithm(models.Model):
    """One version of a detector or classifier; ``key`` identifies it on the wire within a project."""

    project = models.ForeignKey(
        "main.Project",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="own_algorithms",
        help_text=SHARED_IF_NULL,
    )
    name = models.CharField(max_length=255)
    key = models.CharField(max_length=255, db_index=True)
    version = models.IntegerField(default=1)
    version_name = models.CharField(max_length=255, blank=True)
    description = models.TextField(blank=True)
    task_type = models.CharField(max_length=255, blank=True)
    uri = models.CharField(max_length=8192, blank=True)
    category_map = models.ForeignKey(
        AlgorithmCategoryMap, on_delete=models.RESTRICT, null=True, blank=True, related_name="algorithms"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = AlgorithmQuerySet.as_manager()

    class Meta:
        ordering = ["name", "version"]
        constraints = [
            *one_per_project("algorithm", "key"),
            *one_per_project("algorithm", "name", "version"),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    def clean(self) -> None:
        """Refuse another project's category map.

        Raises:
            django.core.exceptions.ValidationError: on ``category_map``.
        """
        if self.category_map and self.category_map.project_id not in (None, self.project_id):
            raise ValidationError({"category_map": "The category map belongs to another project."})

    @property
    def detects(self) -> bool:
        return self.task_type in DETECTION_TASK_TYPES

    @property
    def classifies(self) -> bool:
        return self.task_type in CLASSIFICATION_TASK_TYPES
