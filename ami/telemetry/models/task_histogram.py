"""How long tasks waited and ran, and how they ended."""

from django.db import models

from ami.celery.shown_time import shown_time


class TaskHistogram(models.Model):
    """What was counted of one task of one queue in the seconds from ``at`` on; a minute may have several rows.

    ``waits`` and ``runs`` are counts per bucket of `ami.celery.task_times.BOUNDS`, the last of them without a bound.
    """

    queue = models.CharField(max_length=255)
    task = models.CharField(max_length=255)
    resolution = models.PositiveSmallIntegerField(default=60)
    at = models.DateTimeField(help_text="the database's time, a whole minute or hour")
    started = models.PositiveBigIntegerField(default=0)
    succeeded = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    retried = models.PositiveBigIntegerField(default=0)
    wait_seconds = models.FloatField(default=0.0, help_text="their sum")
    run_seconds = models.FloatField(default=0.0, help_text="their sum")
    waits = models.JSONField(default=list)
    runs = models.JSONField(default=list)

    class Meta:
        indexes = [
            models.Index(fields=["resolution", "at"], name="telemetry_histogram_age"),
            models.Index(fields=["queue", "resolution", "at"], name="telemetry_histogram_queue"),
        ]

    def __str__(self) -> str:
        return f"{self.queue} {self.task} at {shown_time(self.at)}"


class TaskTotal(models.Model):
    """The same of one task of one queue since the first sample."""

    queue = models.CharField(max_length=255)
    task = models.CharField(max_length=255)
    counts = models.JSONField(default=list, help_text="as a worker reports them (ami.celery.task_times)")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "task"], name="telemetry_one_total_per_task")]

    def __str__(self) -> str:
        return f"{self.queue} {self.task}"


class CountedTotals(models.Model):
    """How much of one start of a worker is counted already: its totals of the sampler's last writing."""

    connection_name = models.CharField(max_length=255, primary_key=True)
    totals = models.JSONField(default=dict)
    counted_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.connection_name
