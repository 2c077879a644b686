"""Storage sources, stations and sessions."""

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction

from ami.environment.deferred import deferred
from ami.main.models.base import TimestampedModel
from ami.main.models.projects import Device, Project, Site
from ami.main.services import path_patterns, time_formats
from ami.main.services.paths import problem_of
from ami.main.services.stale_marks import regroup_later
from ami.main.services.times import validate_time_zone

if TYPE_CHECKING:
    from ami.main.services import outbound
else:
    outbound = deferred("ami.main.services.outbound")


def _refuse_path(field: str, path: str) -> None:
    if problem := problem_of(path):
        raise ValidationError({field: problem})


class S3StorageSource(TimestampedModel):
    """The storage of a project's captures: a bucket, or with a ``file://`` endpoint a local folder."""

    name = models.CharField(max_length=255)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, related_name="storage_sources")
    bucket = models.CharField(max_length=255, blank=True)
    prefix = models.CharField(max_length=1024, blank=True)
    region = models.CharField(max_length=255, blank=True)
    endpoint_url = models.CharField(max_length=1024, blank=True, help_text="https://... or file:///folder")
    access_key = models.CharField(max_length=255, blank=True)
    secret_key = models.CharField(max_length=255, blank=True)
    public_base_url = models.CharField(max_length=1024, blank=True)
    total_size = models.BigIntegerField(null=True, blank=True, help_text="bytes")
    total_files = models.BigIntegerField(null=True, blank=True)
    last_checked = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "storage source"
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse forbidden endpoints and a prefix that is not a plain relative path."""
        _refuse_path("prefix", self.prefix)
        urls = {"endpoint_url": self.endpoint_url, "public_base_url": self.public_base_url}
        if refused := {field: reason for field, url in urls.items() if (reason := outbound.refusal(url))}:
            raise ValidationError(refused)


class Deployment(TimestampedModel):
    """A station: one device at one site. Only `ami.main.services.counts` writes its counts, with a delay."""

    name = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="deployments")
    research_site = models.ForeignKey(
        Site, on_delete=models.SET_NULL, null=True, blank=True, related_name="deployments"
    )
    device = models.ForeignKey(Device, on_delete=models.SET_NULL, null=True, blank=True, related_name="deployments")
    latitude = models.FloatField(null=True, blank=True, validators=[MinValueValidator(-90.0), MaxValueValidator(90.0)])
    longitude = models.FloatField(
        null=True, blank=True, validators=[MinValueValidator(-180.0), MaxValueValidator(180.0)]
    )
    time_zone = models.CharField(max_length=64, default="UTC", validators=[validate_time_zone])
    data_source = models.ForeignKey(
        S3StorageSource, on_delete=models.SET_NULL, null=True, blank=True, related_name="deployments"
    )
    data_source_subdir = models.CharField(max_length=1024, blank=True)
    data_source_regex = models.CharField(max_length=255, blank=True)
    data_source_time_format = models.CharField(
        max_length=time_formats.MAX_LENGTH,
        blank=True,
        help_text="how file names write the time, such as %d-%m-%Y_%H-%M-%S; empty: the usual forms, year first",
    )
    data_source_total_files = models.BigIntegerField(null=True, blank=True, editable=False)
    data_source_total_size = models.BigIntegerField(null=True, blank=True, editable=False)
    data_source_last_checked = models.DateTimeField(null=True, blank=True, editable=False)
    captures_count = models.PositiveIntegerField(default=0, editable=False)
    detections_count = models.PositiveIntegerField(default=0, editable=False)
    events_count = models.PositiveIntegerField(default=0, editable=False)
    occurrences_count = models.PositiveIntegerField(default=0, editable=False)
    taxa_count = models.PositiveIntegerField(default=0, editable=False)
    first_capture_timestamp = models.DateTimeField(null=True, blank=True, editable=False)
    last_capture_timestamp = models.DateTimeField(null=True, blank=True, editable=False)
    calculated_fields_updated_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "station"
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse a folder outside the storage source and a pattern or a time format that cannot be used."""
        _refuse_path("data_source_subdir", self.data_source_subdir)
        if problem := path_patterns.problem_of(self.data_source_regex):
            raise ValidationError({"data_source_regex": problem})
        if problem := time_formats.problem_of(self.data_source_time_format):
            raise ValidationError({"data_source_time_format": problem})

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save; mark the sessions stale when the time zone changed, because a session is named by its local date."""
        before = Deployment.objects.filter(pk=self.pk).values_list("time_zone", flat=True).first() if self.pk else None
        with transaction.atomic():
            super().save(*args, **kwargs)
            if before is not None and before != self.time_zone:
                regroup_later([self.pk])


class Event(TimestampedModel):
    """A session: captures of one station without a gap longer than the project's ``session_time_gap_seconds``."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="events")
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="events")
    group_by = models.DateField(help_text="the date that the station's clock showed when the session began")
    start = models.DateTimeField(null=True, blank=True)
    end = models.DateTimeField(null=True, blank=True)
    captures_count = models.PositiveIntegerField(default=0, editable=False)
    detections_count = models.PositiveIntegerField(default=0, editable=False)
    occurrences_count = models.PositiveIntegerField(default=0, editable=False)
    calculated_fields_updated_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "session"
        ordering = ["start", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["deployment", "group_by"], name="one_event_per_deployment_and_day")
        ]

    def __str__(self) -> str:
        return f"{self.group_by}"
