"""Captures (the pictures of a station) and capture sets."""

from typing import Any
from urllib.parse import quote

from django.apps import apps
from django.db import models, transaction
from django.db.models import F, OuterRef, Subquery

from ami.main.models.base import TimestampedModel
from ami.main.models.projects import Project
from ami.main.models.stations import Deployment, Event


class SourceImageQuerySet(models.QuerySet["SourceImage"]):
    """Captures."""

    def update(self, **values: Any) -> int:
        """Update, and let the detections of moved captures follow into the project."""
        if not values.keys() & {"project", "project_id"}:
            return super().update(**values)
        with transaction.atomic():
            keys = list(self.values_list("pk", flat=True))
            number = super().update(**values)
            _move_detections(keys)
        return number


def _move_detections(keys: list[int]) -> None:
    """Copy the project of these captures to their detections."""
    project = SourceImage.objects.filter(pk=OuterRef("source_image_id")).values("project_id")
    detections = apps.get_model("main", "Detection").objects.filter(source_image_id__in=keys)
    moved = detections.exclude(project_id=F("source_image__project_id")).order_by().values_list("pk", flat=True)
    detections.filter(pk__in=list(moved)).update(project_id=Subquery(project))


class SourceImage(TimestampedModel):
    """One capture. Its timestamp is in UTC; a source's time without a zone is read as station time."""

    # The indexes of the lists, below, begin with these keys.
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="captures", db_index=False)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="captures", db_index=False)
    event = models.ForeignKey(
        Event, on_delete=models.SET_NULL, null=True, blank=True, related_name="captures", db_index=False
    )
    path = models.CharField(max_length=1024)
    public_base_url = models.CharField(max_length=1024, blank=True)
    timestamp = models.DateTimeField(null=True, blank=True)
    width = models.PositiveIntegerField(null=True, blank=True)
    height = models.PositiveIntegerField(null=True, blank=True)
    size = models.BigIntegerField(null=True, blank=True, help_text="bytes")
    checksum = models.CharField(max_length=255, blank=True)
    checksum_algorithm = models.CharField(max_length=64, blank=True)
    last_modified = models.DateTimeField(null=True, blank=True)
    detections_count = models.PositiveIntegerField(default=0, editable=False)

    objects = SourceImageQuerySet.as_manager()

    class Meta:
        verbose_name = "capture"
        ordering = ["timestamp", "pk"]
        constraints = [models.UniqueConstraint(fields=["deployment", "path"], name="one_capture_per_deployment_path")]
        indexes = [
            models.Index(fields=["timestamp", "id"], name="captures_by_time"),
            models.Index(fields=["project", "timestamp", "id"], name="captures_of_project"),
            models.Index(fields=["deployment", "timestamp", "id"], include=["project"], name="captures_of_station"),
            models.Index(fields=["event", "timestamp", "id"], include=["project"], name="captures_of_event"),
        ]

    def __str__(self) -> str:
        return self.path

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and let the detections of a moved capture follow into the project."""
        fields = kwargs.get("update_fields")
        may_move = not self._state.adding and (fields is None or {"project", "project_id"} & {*fields})
        with transaction.atomic():
            super().save(*args, **kwargs)
            if may_move:
                _move_detections([self.pk])

    def public_url(self) -> str:
        """Return the public URL of the picture, empty without a public base URL."""
        return public_url(self.public_base_url, self.path)


def public_url(base_url: str, path: str) -> str:
    """Return the public URL of the picture at ``path``: the path is quoted once, and joins the path of the base.

    The base is a URL and stays as it is, with its query. Empty without a base, and for a path with ``.`` or ``..`` as a
    folder: clients resolve it, and would get another file.
    """
    if not base_url or not {".", ".."}.isdisjoint(path.split("/")):
        return ""
    base, mark, query = base_url.partition("#")[0].partition("?")
    return f"{base.rstrip('/')}/{quote(path.lstrip('/'))}{mark}{query}"


class SourceImageCollection(TimestampedModel):
    """A capture set; populating it selects its captures by ``method`` and ``kwargs``."""

    class Method(models.TextChoices):
        """Selection methods; see `ami.main.services.capture_sets`."""

        FULL = "full"
        RANDOM = "random"
        INTERVAL = "interval"
        NTH = "nth"
        MANUAL = "manual"

    name = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="collections")
    method = models.CharField(max_length=16, choices=Method.choices, default=Method.FULL)
    kwargs = models.JSONField(default=dict, blank=True)
    images = models.ManyToManyField(SourceImage, blank=True, related_name="collections")

    class Meta:
        verbose_name = "capture set"
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name
