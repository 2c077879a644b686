"""Bookkeeping: which counts are out of date, who holds a lease, what is being deleted."""

from django.conf import settings
from django.db import models

from ami.main.models.base import TimestampedModel


class StaleCount(models.Model):
    """One mark that an object's calculated fields no longer fit its data.

    Append-only: each mark is a row of its own and a refresh deletes exactly the rows it saw before it counted. One
    row per object would either lose a mark (its writer has not committed when the refresh counts, and finds the row
    "already there") or make every ingest transaction of a station queue for that row's lock (incident 34).
    """

    class Kind(models.TextChoices):
        """What is stale; ``sessions`` means a station's grouping into events."""

        EVENT = "event"
        DEPLOYMENT = "deployment"
        PROJECT = "project"
        SESSIONS = "sessions"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    object_pk = models.BigIntegerField()
    marked_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["kind", "object_pk"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.object_pk}"


class Lease(models.Model):
    """The right to do one named thing alone, until it expires; see `ami.main.services.leases`.

    ``state`` says how far the work is, so that the next owner goes on where the last one stopped.
    """

    name = models.CharField(max_length=255, unique=True)
    lease_owner = models.CharField(max_length=64, blank=True, db_column="owner")
    lease_expires_at = models.DateTimeField(null=True, db_column="expires_at")
    state = models.JSONField(default=dict, blank=True)

    def __str__(self) -> str:
        return f"{self.name}, owner {self.lease_owner or 'none'}"


class BulkDeletion(TimestampedModel):
    """What a person asked to delete; a task gets this row's key instead of a list that may be huge."""

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
    """Attempts to sign in within one window of time; see `ami.main.services.login_attempts`.

    ``digest`` is a keyed hash of the address, the account or both, ``ends_at`` the window's end in Unix seconds.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    attempts = models.PositiveIntegerField()
    ends_at = models.BigIntegerField(db_index=True)

    def __str__(self) -> str:
        return f"{self.attempts} attempts until {self.ends_at}"
