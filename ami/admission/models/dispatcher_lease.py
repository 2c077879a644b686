"""Which process dispatches the calls of a queue."""

from django.db import models


class DispatcherLease(models.Model):
    """``until`` is by the database's clock; each pick renews the lease in its transaction, so that it is the only one.

    ``virtual`` is the share of the work of the key that was picked last: a key that was idle begins there.
    """

    queue = models.CharField(max_length=255, primary_key=True)
    holder = models.CharField(max_length=255, blank=True)
    until = models.DateTimeField()
    virtual = models.FloatField(default=0.0)

    def __str__(self) -> str:
        return f"{self.queue}: {self.holder}"
