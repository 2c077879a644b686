"""Detections, classifications, occurrences and identifications."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core.validators import MaxLengthValidator
from django.db import models
from django.db.models import Q

from ami.main.models.base import TimestampedModel
from ami.main.models.captures import SourceImage
from ami.main.models.float_list import FloatListField
from ami.main.models.projects import Project
from ami.main.models.stations import Deployment, Event
from ami.main.models.taxa import Taxon
from ami.main.services.boxes import NULL_KEY, bbox_key


class DetectionQuerySet(models.QuerySet["Detection"]):
    """Detections; a null marker records that a detector ran on a capture and found nothing."""

    def real(self) -> "DetectionQuerySet":
        """Return the detections without null markers; every count is of these."""
        return self.filter(bbox__isnull=False)

    def bulk_create(self, objs: Iterable["Detection"], *args: Any, **kwargs: Any) -> list["Detection"]:
        """Set ``bbox_key`` and ``project``, as ``save()`` does, and insert."""
        detections = list(objs)
        _set_projects(detections)
        for detection in detections:
            detection.bbox_key = bbox_key(detection.bbox)
        return super().bulk_create(detections, *args, **kwargs)


def _set_projects(detections: list["Detection"]) -> None:
    """Copy the project of each capture to its detections, with at most one query."""
    missing = [detection for detection in detections if detection.project_id is None]
    unread = {each.source_image_id for each in missing if not Detection.source_image.is_cached(each)}
    projects = dict(SourceImage.objects.filter(pk__in=unread).values_list("pk", "project_id")) if unread else {}
    for each in missing:
        read = each.source_image_id not in projects and Detection.source_image.is_cached(each)
        each.project_id = each.source_image.project_id if read else projects.get(each.source_image_id)


class Detection(TimestampedModel):
    """A detector's box on a capture; with ``bbox`` NULL a null marker: the detector ran and found nothing.

    ``bbox`` is ``[x1, y1, x2, y2]`` in pixels; ``path`` is the crop in the default storage, empty until it exists.
    ``project`` is a copy of the capture's, for lists.
    """

    project = models.ForeignKey(
        Project,
        # They are deleted with their capture.
        on_delete=models.DO_NOTHING,
        editable=False,
        related_name="detections",
        db_index=False,
        db_constraint=False,
    )

    # Other indexes, below, begin with these keys.
    source_image = models.ForeignKey(SourceImage, on_delete=models.CASCADE, related_name="detections", db_index=False)
    detection_algorithm = models.ForeignKey(
        "ml.Algorithm", on_delete=models.RESTRICT, related_name="detections", db_index=False
    )
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
        indexes = [
            models.Index(fields=["source_image", "-created_at"]),
            models.Index(fields=["detection_algorithm", "id"], name="detections_by_algorithm"),
            models.Index(fields=["project", "id"], condition=Q(bbox__isnull=False), name="detections_of_project"),
        ]

    def __str__(self) -> str:
        return f"{self.source_image_id}: {self.bbox_key}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Set ``bbox_key`` from ``bbox`` and the project of a new row from its capture, and save."""
        self.bbox_key = bbox_key(self.bbox)
        if self._state.adding:
            self.project_id = self.source_image.project_id
        if kwargs.get("update_fields") and "bbox" in kwargs["update_fields"]:
            kwargs["update_fields"] = {*kwargs["update_fields"], "bbox_key"}
        super().save(*args, **kwargs)


class ClassificationQuerySet(models.QuerySet["Classification"]):
    """Classifications, those that newer jobs have replaced included."""

    def current(self) -> "ClassificationQuerySet":
        """Return the one of each detection and algorithm that counts: every list and determination is of these."""
        return self.filter(is_current=True)


class Classification(TimestampedModel):
    """A classifier's result for a detection; ``scores[i]`` and ``logits[i]`` belong to label i of the category map.

    A newer job's row replaces an older job's as the current one and leaves it as it is (decision 0045). ``job_id`` is
    None in rows that no job made, and stays when the job is deleted.
    """

    #: The fields that may be long, for ``defer()``.
    LONG_LISTS = ("scores", "logits")

    # Other indexes, below, begin with these keys.
    detection = models.ForeignKey(Detection, on_delete=models.CASCADE, related_name="classifications", db_index=False)
    algorithm = models.ForeignKey(
        "ml.Algorithm", on_delete=models.RESTRICT, related_name="classifications", db_index=False
    )
    job = models.ForeignKey(
        "jobs.Job",
        # The history keeps the number of a job that is gone, and its order among the others.
        on_delete=models.DO_NOTHING,
        null=True,
        blank=True,
        editable=False,
        related_name="classifications",
        db_index=False,
        db_constraint=False,
    )
    is_current = models.BooleanField(default=True, db_default=True, editable=False)
    category_map = models.ForeignKey(
        "ml.AlgorithmCategoryMap", on_delete=models.RESTRICT, null=True, blank=True, related_name="classifications"
    )
    taxon = models.ForeignKey(Taxon, on_delete=models.SET_NULL, null=True, blank=True, related_name="classifications")
    score = models.FloatField(null=True, blank=True)
    scores = FloatListField(default=list, blank=True)
    logits = FloatListField(default=list, blank=True)
    terminal = models.BooleanField(default=True)
    timestamp = models.DateTimeField(null=True, blank=True)
    applied_to = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="derived")

    objects = ClassificationQuerySet.as_manager()

    class Meta:
        ordering = ["-score", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["detection", "algorithm", "job"], name="one_classification_per_detection_algorithm_and_job"
            ),
            models.UniqueConstraint(
                fields=["detection", "algorithm"],
                condition=Q(job__isnull=True),
                name="one_classification_without_job_per_detection_and_algorithm",
            ),
            models.UniqueConstraint(
                fields=["detection", "algorithm"],
                condition=Q(is_current=True),
                name="one_current_classification_per_detection_and_algorithm",
            ),
        ]
        indexes = [
            models.Index(fields=["algorithm", "id"], name="classifications_by_algorithm"),
            models.Index(fields=["id"], condition=Q(terminal=False), name="classifications_intermediate"),
            models.Index(fields=["id"], condition=Q(is_current=False), name="classifications_replaced"),
        ]

    def __str__(self) -> str:
        return f"{self.taxon_id}: {self.score}"


class Occurrence(TimestampedModel):
    """One organism at one place and time: exactly one per detection, deleted with it (incident 44)."""

    detection = models.OneToOneField(Detection, on_delete=models.CASCADE, related_name="occurrence")
    # The indexes of the lists, below, begin with these keys.
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="occurrences", db_index=False)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="occurrences", db_index=False)
    event = models.ForeignKey(
        Event, on_delete=models.SET_NULL, null=True, blank=True, related_name="occurrences", db_index=False
    )
    determination = models.ForeignKey(
        Taxon, on_delete=models.SET_NULL, null=True, blank=True, related_name="occurrences", db_index=False
    )
    determination_score = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ["-determination_score", "pk"]
        indexes = [
            models.Index(fields=["determination", "project", "event", "determination_score"]),
            models.Index(fields=["project", "-updated_at"]),
            models.Index(fields=["project", "id"]),
            models.Index(fields=["-determination_score", "id"], name="occurrences_by_score"),
            # With the columns by which keys are chosen, so that no row is looked up for one that is not shown.
            models.Index(fields=["project", "-determination_score", "id"], name="occurrences_of_project"),
            models.Index(
                fields=["deployment", "-determination_score", "id"],
                include=["project", "detection"],
                name="occurrences_of_station",
            ),
            models.Index(
                fields=["event", "-determination_score", "id"],
                include=["project", "detection"],
                name="occurrences_of_event",
            ),
            models.Index(
                fields=["determination", "-determination_score", "id"], include=["project"], name="occurrences_of_taxon"
            ),
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
