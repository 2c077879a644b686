"""Processing services: programs that run pipelines. Push services are called; pull services fetch their work."""

from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from ami.environment.deferred import deferred
from ami.ml.cold_start import COLD_START_SECONDS
from ami.ml.models.algorithm import one_per_project
from ami.ml.models.pipeline import Pipeline

if TYPE_CHECKING:
    from ami.main.services import outbound
else:
    outbound = deferred("ami.main.services.outbound")


class ProcessingService(models.Model):
    """One service; without an ``endpoint_url`` it is a pull service (async), seen only when it calls."""

    project = models.ForeignKey(
        "main.Project",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="own_processing_services",
        help_text="the project within which its name is unique; empty: of staff, for the projects below",
    )
    name = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    endpoint_url = models.CharField(max_length=1024, null=True, blank=True)  # noqa: DJ001
    projects = models.ManyToManyField("main.Project", blank=True, related_name="processing_services")
    pipelines = models.ManyToManyField(Pipeline, blank=True, related_name="processing_services")
    last_seen = models.DateTimeField(null=True, blank=True)
    last_seen_live = models.BooleanField(null=True, blank=True)
    last_seen_latency = models.FloatField(null=True, blank=True, help_text="seconds")
    failing_since = models.DateTimeField(
        null=True, blank=True, help_text="when it first did not answer; empty after an answer"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = one_per_project("service", "name")

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if reason := outbound.refusal(self.endpoint_url or ""):
            raise ValidationError({"endpoint_url": reason})

    @property
    def state(self) -> str:
        """Return "online", "starting" (no answer, for less than a cold start may take), "offline" or "unknown"."""
        if self.last_seen_live:
            return "online"
        since = self.failing_since
        if since and (timezone.now() - since).total_seconds() < COLD_START_SECONDS:
            return "starting"
        return "unknown" if self.last_seen_live is None and since is None else "offline"

    @property
    def pulls(self) -> bool:
        """Whether the service fetches its work instead of being called."""
        return not self.endpoint_url
