"""Tokens of the API: only a hash of each is stored, so reading the table opens nothing."""

import hashlib
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone

PREFIX_LENGTH = 8


def digest_of(key: str) -> str:
    """Return the hash under which a key is stored; a key is 160 random bits, so one plain round is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Tokens."""

    def live(self) -> "ApiTokenQuerySet":
        """Return those that were not revoked and have not expired."""
        unexpired = models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now())
        return self.filter(unexpired, revoked_at=None)

    def with_last_use(self) -> "ApiTokenQuerySet":
        """Annotate ``used``: the last use, or where there was none the making."""
        return self.annotate(used=Coalesce("last_used_at", "created_at"))

    def revoke(self) -> int:
        """Make them worthless; return how many were live."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now())


class ApiToken(models.Model):
    """What a person or a worker carries in ``Authorization: Token <40 hex>``.

    A worker's token reaches the worker contract of ``projects`` and nothing else, as far as its user is still a member
    there. ``last_used_at`` is up to five minutes old (`ami.main.services.tokens`).
    """

    class Scope(models.TextChoices):
        """What a token reaches."""

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
        """Whether it reaches only the worker contract."""
        return self.scope == self.Scope.WORKER

    def is_usable(self, now: datetime) -> bool:
        """Whether it still opens anything: a person's token ends when it was not used for a while."""
        if self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= now):
            return False
        idle = now - (self.last_used_at or self.created_at)
        return self.is_worker or idle < timedelta(days=settings.ANTENNA_TOKEN_IDLE_DAYS)
