"""What operators did."""

from django.conf import settings
from django.db import models


class AuditEntry(models.Model):
    """One operation on one target, done, refused or failed. Rows are only added."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    who = models.CharField(max_length=255)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False
    )
    verb = models.CharField(max_length=255)
    target = models.TextField(blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    why = models.CharField(max_length=500, blank=True)
    source = models.CharField(max_length=64, blank=True, help_text="command, admin, api or worker")
    outcome = models.CharField(max_length=1000, default="done")

    class Meta:
        verbose_name = "audit entry"
        verbose_name_plural = "audit log"
        ordering = ["-at", "-pk"]

    def __str__(self) -> str:
        return f"{self.who}: {self.verb} {self.target}"[:200]
