"""What a queue or a worker was like at one moment, or in a minute or an hour."""

from django.db import models

from ami.celery.shown_time import shown_time


class Sample(models.Model):
    """One row per queue or worker and moment. A column is null where the figure is unknown, or is not of its kind.

    Resolution 5 is what was seen; 60 and 3600 hold the largest waiting, delayed and memory, the mean of the other
    gauges, and the sums of what started, ended and failed, of the seconds from ``at`` on.
    """

    class Kind(models.TextChoices):
        """What ``name`` names."""

        QUEUE = "queue"
        WORKER = "worker"

    kind = models.CharField(max_length=8, choices=Kind.choices)
    name = models.CharField(max_length=255)
    resolution = models.PositiveSmallIntegerField()
    at = models.DateTimeField(help_text="the database's time")
    waiting = models.PositiveBigIntegerField(null=True)
    delayed = models.PositiveBigIntegerField(null=True)
    running = models.FloatField(null=True)
    consumers = models.FloatField(null=True)
    started = models.PositiveBigIntegerField(null=True)
    ended = models.PositiveBigIntegerField(null=True)
    failed = models.PositiveBigIntegerField(null=True)
    memory_used_bytes = models.PositiveBigIntegerField(null=True)
    memory_limit_bytes = models.PositiveBigIntegerField(null=True)
    children = models.FloatField(null=True)
    held = models.FloatField(null=True, help_text="1 while it is held; the share of the time it was")
    version = models.CharField(max_length=255, blank=True, db_default="", help_text="that a worker runs")

    class Meta:
        indexes = [models.Index(fields=["resolution", "at"], name="telemetry_sample_age")]
        constraints = [
            models.UniqueConstraint(fields=["kind", "name", "resolution", "at"], name="telemetry_one_sample_a_moment")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} at {shown_time(self.at)}"
