"""Tasks that run for a while, and the runs that may commit."""

from django.db import models


class TaskRun(models.Model):
    """A task that has run for longer than two seconds, or was delivered again after its worker died."""

    task_id = models.CharField(max_length=255, primary_key=True)
    task = models.CharField(max_length=255)
    node = models.CharField(max_length=255, db_index=True)
    pid = models.PositiveBigIntegerField(default=0)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="the worker's last report of it, by the database's clock")
    attempts = models.PositiveIntegerField(default=1, help_text="how often it was begun")
    is_redelivered = models.BooleanField(default=False)
    kib = models.PositiveBigIntegerField(default=0, help_text="memory of its process")
    progress = models.CharField(max_length=255, blank=True)
    beaten_at = models.DateTimeField(null=True, help_text="when it last reported progress")
    stall_seconds = models.PositiveIntegerField(default=0, help_text="how long it may stay silent between two reports")
    ended_at = models.DateTimeField(null=True, db_index=True)
    outcome = models.CharField(max_length=32, blank=True)

    class Meta:
        verbose_name = "task run"

    def __str__(self) -> str:
        return f"{self.task} {self.task_id}"


class Fence(models.Model):
    """The one run that may commit the effects of ``key``; a later run replaces it."""

    key = models.CharField(max_length=255, primary_key=True)
    run = models.CharField(max_length=32, help_text="the run's uuid, hexadecimal")
    task_id = models.CharField(max_length=255)
    node = models.CharField(max_length=255)
    started_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.key}: {self.run}"
