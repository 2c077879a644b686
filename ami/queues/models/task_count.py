"""How many tasks of a queue ended, as its workers counted them."""

from django.db import models


class TaskCount(models.Model):
    """One queue in one hour. ``failed`` are those that were given up: buried."""

    queue = models.CharField(max_length=255)
    hour = models.DateTimeField()
    completed = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "hour"], name="queues_one_count_per_hour")]

    def __str__(self) -> str:
        return f"{self.queue} {self.hour}: {self.completed} completed, {self.failed} failed"
