"""What a worker had counted when it ended."""

from django.db import models


class EndedWorker(models.Model):
    """The last totals of one start of a worker whose row is gone; the sampler counts and deletes them."""

    connection_name = models.CharField(max_length=255, primary_key=True)
    totals = models.JSONField(default=dict)
    ended_at = models.DateTimeField()

    class Meta:
        verbose_name = "ended worker"

    def __str__(self) -> str:
        return self.connection_name
