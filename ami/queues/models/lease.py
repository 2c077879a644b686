"""Work that one process of the deployment does at a time."""

from django.db import models


class Lease(models.Model):
    """See `ami.queues.named_leases`. ``state`` is how far the work is: the next holder continues there."""

    name = models.CharField(max_length=255, primary_key=True)
    holder = models.CharField(max_length=255, blank=True)
    until = models.DateTimeField()
    state = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return f"{self.name}: {self.holder or 'free'}"
