"""A value that one process of the deployment makes for all."""

from django.db import models


class SharedValue(models.Model):
    """``version`` grows with each value; the process that raises ``taking_until`` makes the next one.

    Times are the database's.
    """

    name = models.CharField(max_length=32, primary_key=True)
    version = models.PositiveBigIntegerField(default=0)
    value = models.JSONField(null=True)
    made_at = models.DateTimeField(null=True)
    taking_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"
