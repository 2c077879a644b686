"""How far an audit has come."""

from django.db import models


class AuditPosition(models.Model):
    """How far an audit has looked at a table that it looks at in parts, and what it found."""

    name = models.CharField(max_length=100, unique=True)
    last_key = models.BigIntegerField(default=0, help_text="rows up to this key are looked at; 0 between two passes")
    found = models.PositiveBigIntegerField(default=0, help_text="by this pass, so far")
    found_by_last_pass = models.PositiveBigIntegerField(null=True, blank=True)
    pass_ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "position of an audit"
        verbose_name_plural = "positions of audits"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
