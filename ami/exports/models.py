"""Exports, their parts, and scheduled exports."""

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from ami.main.models import Project, TimestampedModel


class DataExport(TimestampedModel):
    """One export of a project's occurrences to one file.

    ``run`` numbers the attempts to write it from the start; ``upto_pk`` is the last occurrence of this run, fixed at
    its start, so that later occurrences do not prolong it. ``file_path`` is empty until there is a file.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="exports"
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="exports")
    job = models.OneToOneField(
        "jobs.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="data_export", editable=False
    )
    format = models.CharField(max_length=64)
    filters = models.JSONField(default=dict, blank=True)
    filters_display = models.CharField(max_length=255, blank=True, editable=False)
    scheduled = models.BooleanField(default=False, editable=False)
    run = models.PositiveIntegerField(default=1, editable=False)
    upto_pk = models.BigIntegerField(null=True, editable=False)
    file_path = models.CharField(max_length=1024, blank=True, editable=False)
    file_size = models.BigIntegerField(null=True, editable=False, help_text="bytes")
    record_count = models.PositiveBigIntegerField(null=True, editable=False)
    advanced_at = models.DateTimeField(null=True, editable=False)
    finished_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"export {self.pk} ({self.format})"


class ExportPart(models.Model):
    """A part of an export's file: the rows after ``after_pk`` up to ``last_pk``, in ``path`` of the default storage.

    Only files with a row are used. Of two workers that write the same part, the second one violates the constraint and
    deletes its file; a crash leaves a file without a row, which is never read.
    """

    export = models.ForeignKey(DataExport, on_delete=models.CASCADE, related_name="parts")
    run = models.PositiveIntegerField()
    after_pk = models.BigIntegerField()
    last_pk = models.BigIntegerField()
    rows = models.PositiveIntegerField()
    path = models.CharField(max_length=1024)

    class Meta:
        ordering = ["after_pk"]
        constraints = [models.UniqueConstraint(fields=["export", "run", "after_pk"], name="one_part_per_place")]

    def __str__(self) -> str:
        return f"{self.rows} rows after {self.after_pk}"


class ScheduledExport(TimestampedModel):
    """An export that is repeated every ``every_hours``."""

    name = models.CharField(max_length=255)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="scheduled_exports")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    format = models.CharField(max_length=64)
    filters = models.JSONField(default=dict, blank=True)
    every_hours = models.PositiveIntegerField(default=24, validators=[MinValueValidator(1), MaxValueValidator(8784)])
    enabled = models.BooleanField(default=True)
    next_run_at = models.DateTimeField(null=True, blank=True, help_text="empty means at the next tick")
    last_export = models.ForeignKey(
        DataExport, on_delete=models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name
