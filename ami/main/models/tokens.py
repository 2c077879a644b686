"""API tokens; only a hash of each key is stored, so the table reveals no usable key."""

import hashlib
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone

PREFIX_LENGTH = 8


def digest_of(key: str) -> str:
    """Return the stored hash of a key; a key is 160 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Tokens, filtered by validity."""

    def live(self) -> "ApiTokenQuerySet":
        """Return the tokens that are neither revoked nor expired."""
        unexpired = models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now())
        return self.filter(unexpired, revoked_at=None)

    def with_last_use(self) -> "ApiTokenQuerySet":
        """Annotate ``used``: the time of the last use, else of creation."""
        return self.annotate(used=Coalesce("last_used_at", "created_at"))

    def revoke(self) -> int:
        """Revoke the tokens; return how many were not revoked before."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now())


class ApiToken(models.Model):
    """A token of a person or a worker, sent as ``Authorization: Token <40 hex>``.

    A worker's token gives access to the worker contract of ``projects`` only, while its user is a member there.
    ``last_used_at`` is up to five minutes old (`ami.main.services.tokens`).
    """

    class Scope(models.TextChoices):
        """What a token gives access to."""

        PERSON = "person"
        WORKER = "worker"

    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=PREFIX_LENGTH, editable=False, help_text="how the key begins")
    name = models.CharField(max_length=255, blank=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    scope = models.CharField(max_length=16, choices=Scope.choices, default=Scope.PERSON)
    projects = models.ManyToManyField("main.Project", blank=True, related_name="+", help_text="a worker's, no others")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"
        ordering = ["-created_at", "-pk"]
        permissions = [("revoke_apitoken", "Can revoke API tokens")]
        indexes = [models.Index(fields=["user", "scope", "created_at"])]

    def __str__(self) -> str:
        return f"{self.prefix}… {self.name}".strip()

    @property
    def is_worker(self) -> bool:
        """Whether it gives access to the worker contract only."""
        return self.scope == self.Scope.WORKER

    def is_usable(self, now: datetime) -> bool:
        """Whether the token is valid; a person's token also expires after ANTENNA_TOKEN_IDLE_DAYS without use."""
        if self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= now):
            return False
        idle = now - (self.last_used_at or self.created_at)
        return self.is_worker or idle < timedelta(days=settings.ANTENNA_TOKEN_IDLE_DAYS)
