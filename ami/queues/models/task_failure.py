"""Why a try of a task failed."""

from django.db import models


class TaskFailure(models.Model):
    """One try that failed, as its worker recorded it (`ami.celery.failures.record`); times of the worker's machine.

    ``cause`` is the same for failures of one task with the same exception, at the same function, with the same message
    apart from its numbers and ids.
    """

    task_id = models.CharField(max_length=255)
    retries = models.PositiveIntegerField(help_text="tries before this one")
    delivery = models.PositiveIntegerField(help_text="how often its message was delivered before")
    task = models.CharField(max_length=255)
    kind = models.CharField(max_length=16)
    exception = models.CharField(max_length=255)
    message = models.TextField(blank=True)
    place = models.CharField(max_length=255, blank=True, help_text="file:line in function")
    traceback = models.TextField(blank=True)
    node = models.CharField(max_length=255, blank=True)
    host = models.CharField(max_length=255, blank=True)
    pid = models.PositiveBigIntegerField(default=0)
    failed_at = models.DateTimeField()
    seconds = models.FloatField(default=0.0, help_text="how long it ran")
    peak_kib = models.PositiveBigIntegerField(default=0, help_text="most memory of its process")
    cause = models.CharField(max_length=40)
    cause_text = models.CharField(max_length=255, blank=True, help_text="the message without its numbers and ids")

    class Meta:
        verbose_name = "task failure"
        constraints = [
            # With the time: a message that is sent again from the dead letters begins with its first try.
            models.UniqueConstraint(
                fields=["task_id", "retries", "delivery", "failed_at"], name="queues_one_failure_per_try"
            )
        ]
        indexes = [
            models.Index(fields=["-failed_at"], name="queues_failure_newest"),
            models.Index(fields=["cause", "-failed_at"], name="queues_failure_cause"),
            models.Index(fields=["task", "-failed_at"], name="queues_failure_task"),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.task_id}: {self.exception}"
