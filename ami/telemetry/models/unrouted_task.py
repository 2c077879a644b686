"""A task that no rule claims, counted."""

from django.db import models


class UnroutedTask(models.Model):
    """A task that no rule of the topology claims, and how often it ran on the fallback queue."""

    name = models.CharField(max_length=255, unique=True)
    runs = models.PositiveBigIntegerField(default=0)
    first_run_at = models.DateTimeField(auto_now_add=True)
    last_run_at = models.DateTimeField()

    class Meta:
        verbose_name = "unrouted task"
        ordering = ("-last_run_at",)

    def __str__(self) -> str:
        return self.name
