"""Rows that only the application writes: bulk deletions, login attempts."""

from django.conf import settings
from django.db import models

from ami.main.models.base import TimestampedModel


class BulkDeletion(TimestampedModel):
    """A user's request to delete ``pks``; the task gets the key of this row instead of a huge list."""

    class Target(models.TextChoices):
        """What may be deleted in bulk."""

        CAPTURES = "captures"
        OCCURRENCES = "occurrences"

    target = models.CharField(max_length=16, choices=Target.choices)
    pks = models.JSONField(default=list)
    done = models.PositiveIntegerField(default=0, help_text="how many of pks are dealt with, from the front")
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.done} of {len(self.pks)} {self.target}"


class LoginAttempts(models.Model):
    """Sign-in attempts within one time window; see `ami.main.services.login_attempts`.

    ``digest`` is a keyed hash of the address, the account or both, ``ends_at`` the end of the window in Unix seconds.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    attempts = models.PositiveIntegerField()
    ends_at = models.BigIntegerField(db_index=True)

    def __str__(self) -> str:
        return f"{self.attempts} attempts until {self.ends_at}"
