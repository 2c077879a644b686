"""Detections, classifications, occurrences and identifications."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core.validators import MaxLengthValidator
from django.db import models
from django.db.models import Q

from ami.main.models.base import TimestampedModel
from ami.main.models.captures import SourceImage
from ami.main.models.projects import Project
from ami.main.models.stations import Deployment, Event
from ami.main.models.taxa import Taxon
from ami.main.services.boxes import NULL_KEY, bbox_key


class DetectionQuerySet(models.QuerySet["Detection"]):
    """Detections; a null marker records that a detector ran on a capture and found nothing."""

    def real(self) -> "DetectionQuerySet":
        """Return the detections without null markers; every count is of these."""
        return self.filter(bbox__isnull=False)

    def null_markers(self) -> "DetectionQuerySet":
        return self.filter(bbox__isnull=True)

    def bulk_create(self, objs: Iterable["Detection"], *args: Any, **kwargs: Any) -> list["Detection"]:
        """Set ``bbox_key``, as ``save()`` does, and insert."""
        detections = list(objs)
        for detection in detections:
            detection.bbox_key = bbox_key(detection.bbox)
        return super().bulk_create(detections, *args, **kwargs)


class Detection(TimestampedModel):
    """A detector's box on a capture; with ``bbox`` NULL a null marker: the detector ran and found nothing.

    ``bbox`` is ``[x1, y1, x2, y2]`` in pixels; ``path`` is the crop in the default storage, empty until it exists.
    """

    source_image = models.ForeignKey(SourceImage, on_delete=models.CASCADE, related_name="detections")
    detection_algorithm = models.ForeignKey("ml.Algorithm", on_delete=models.RESTRICT, related_name="detections")
    bbox = models.JSONField(null=True, blank=True)
    bbox_key = models.CharField(max_length=64, editable=False)
    path = models.CharField(max_length=1024, blank=True)
    timestamp = models.DateTimeField(null=True, blank=True)
    detection_time = models.DateTimeField(null=True, blank=True)
    frame_num = models.PositiveIntegerField(null=True, blank=True)
    similarity_vector = models.JSONField(null=True, blank=True)

    objects = DetectionQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["source_image", "detection_algorithm", "bbox_key"],
                name="one_detection_per_capture_algorithm_and_box",
            ),
            models.CheckConstraint(
                condition=Q(bbox__isnull=True, bbox_key=NULL_KEY)
                | (Q(bbox__isnull=False) & ~Q(bbox_key__in=[NULL_KEY, ""])),
                name="bbox_key_says_null_exactly_when_bbox_is",
            ),
        ]
        indexes = [models.Index(fields=["source_image", "-created_at"])]

    def __str__(self) -> str:
        return f"{self.source_image_id}: {self.bbox_key}"

    @property
    def is_null_marker(self) -> bool:
        return self.bbox is None

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Set ``bbox_key`` from ``bbox`` and save."""
        self.bbox_key = bbox_key(self.bbox)
        if kwargs.get("update_fields") and "bbox" in kwargs["update_fields"]:
            kwargs["update_fields"] = {*kwargs["update_fields"], "bbox_key"}
        super().save(*args, **kwargs)


class Classification(TimestampedModel):
    """A classifier's result for a detection; ``scores[i]`` and ``logits[i]`` belong to label i of the category map."""

    detection = models.ForeignKey(Detection, on_delete=models.CASCADE, related_name="classifications")
    algorithm = models.ForeignKey("ml.Algorithm", on_delete=models.RESTRICT, related_name="classifications")
    category_map = models.ForeignKey(
        "ml.AlgorithmCategoryMap", on_delete=models.RESTRICT, null=True, blank=True, related_name="classifications"
    )
    taxon = models.ForeignKey(Taxon, on_delete=models.SET_NULL, null=True, blank=True, related_name="classifications")
    score = models.FloatField(null=True, blank=True)
    scores = models.JSONField(default=list, blank=True)
    logits = models.JSONField(default=list, blank=True)
    terminal = models.BooleanField(default=True)
    timestamp = models.DateTimeField(null=True, blank=True)
    applied_to = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="derived")

    class Meta:
        ordering = ["-score", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["detection", "algorithm"], name="one_classification_per_detection_and_algorithm"
            )
        ]

    def __str__(self) -> str:
        return f"{self.taxon_id}: {self.score}"


class Occurrence(TimestampedModel):
    """One organism at one place and time: exactly one per detection, deleted with it (incident 44)."""

    detection = models.OneToOneField(Detection, on_delete=models.CASCADE, related_name="occurrence")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="occurrences")
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="occurrences")
    event = models.ForeignKey(Event, on_delete=models.SET_NULL, null=True, blank=True, related_name="occurrences")
    determination = models.ForeignKey(
        Taxon, on_delete=models.SET_NULL, null=True, blank=True, related_name="occurrences"
    )
    determination_score = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ["-determination_score", "pk"]
        indexes = [
            models.Index(fields=["determination", "project", "event", "determination_score"]),
            models.Index(fields=["project", "-updated_at"]),
            models.Index(fields=["project", "-determination_score"]),
            models.Index(fields=["project", "id"]),
        ]

    def __str__(self) -> str:
        return f"occurrence {self.pk}"


class Identification(TimestampedModel):
    """A user's determination of an occurrence; the newest one not withdrawn takes precedence over classifications."""

    occurrence = models.ForeignKey(Occurrence, on_delete=models.CASCADE, related_name="identifications")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="identifications"
    )
    taxon = models.ForeignKey(Taxon, on_delete=models.SET_NULL, null=True, related_name="identifications")
    withdrawn = models.BooleanField(default=False)
    agreed_with_identification = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="agreements"
    )
    agreed_with_prediction = models.ForeignKey(
        Classification, on_delete=models.SET_NULL, null=True, blank=True, related_name="agreements"
    )
    comment = models.TextField(blank=True, validators=[MaxLengthValidator(10_000)])

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.taxon_id}"
