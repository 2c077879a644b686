"""What an adoption keeps between two runs."""

from django.db import models


class Adoption(models.Model):
    """The progress of ``manage.py queues adopt`` from one old broker; ``source`` has no login in it.

    ``counts`` are lists of what is counted together and its number. ``in_flight`` names the messages whose copy may
    have been published while they are still in their old queue.
    """

    source = models.CharField(max_length=255, unique=True)
    owner = models.CharField(max_length=64, blank=True, help_text="the latest run")
    counts = models.JSONField(default=list)
    possibly_doubled = models.PositiveBigIntegerField(default=0)
    in_flight = models.JSONField(default=list)
    started_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.source
