"""A beat that runs, or did a while ago."""

from django.db import models


class Beat(models.Model):
    """Times are the database's: beats run on several machines. A beat that ends in order deletes its row."""

    name = models.CharField(max_length=255, primary_key=True, help_text="host:pid")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()

    class Meta:
        verbose_name = "beat"

    def __str__(self) -> str:
        return self.name
