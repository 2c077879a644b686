"""Algorithms: a detector or a classifier in one version."""

import hashlib
import json
from collections.abc import Sequence

from django.db import models

DETECTION_TASK_TYPES = ("detection", "localization", "segmentation")
CLASSIFICATION_TASK_TYPES = ("classification", "tagging")


class AlgorithmCategoryMap(models.Model):
    """The classes of a classifier; ``labels[i]`` is what ``scores[i]`` of its classifications is about."""

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
        """Save, with the hash of the labels filled in."""
        self.labels_hash = self.hash_labels(self.labels)
        super().save(*args, **kwargs)  # type: ignore[arg-type]

    @staticmethod
    def hash_labels(labels: Sequence[str]) -> str:
        """Return the hash by which an equal list of labels is found again."""
        return hashlib.sha256(json.dumps(list(labels)).encode()).hexdigest()


class Algorithm(models.Model):
    """One detector or classifier; ``key`` is its identity on the wire."""

    name = models.CharField(max_length=255)
    key = models.CharField(max_length=255, unique=True)
    version = models.IntegerField(default=1)
    version_name = models.CharField(max_length=255, blank=True)
    description = models.TextField(blank=True)
    task_type = models.CharField(max_length=255, blank=True)
    uri = models.CharField(max_length=8192, blank=True)
    category_map = models.ForeignKey(
        AlgorithmCategoryMap, on_delete=models.PROTECT, null=True, blank=True, related_name="algorithms"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "version"]
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="one_algorithm_per_name_version")]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    @property
    def detects(self) -> bool:
        """Whether it draws boxes."""
        return self.task_type in DETECTION_TASK_TYPES

    @property
    def classifies(self) -> bool:
        """Whether it names what is in a box."""
        return self.task_type in CLASSIFICATION_TASK_TYPES
