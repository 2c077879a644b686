"""Work that one process of the deployment does at a time."""

from django.db import models


class Lease(models.Model):
    """``until`` is by the database's clock; a lease that is over can be taken by anybody."""

    name = models.CharField(max_length=64, primary_key=True)
    holder = models.CharField(max_length=255)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}"
