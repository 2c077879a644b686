"""Findings that last, and what each receiver has still to get about them."""

from django.db import models


class Alert(models.Model):
    """One row from when a finding is first seen until a day after it was over; times are the database's.

    Pending until ``fired_at``, open until ``resolved_at``. ``absent_since`` is the first look without it: it is over
    then, if it stays so. ``noticed_at`` is when it fired or was last repeated. ``waiting`` has by receiver what is to
    be sent: ``events``, oldest first, and after a failure ``since`` (ISO), ``tries`` and ``why``, without an address.
    """

    name = models.CharField(max_length=64, help_text="of the finding")
    target = models.CharField(max_length=255, blank=True)
    level = models.CharField(max_length=8)
    sentence = models.TextField(help_text="as of the last notice")
    since = models.DateTimeField()
    absent_since = models.DateTimeField(null=True)
    fired_at = models.DateTimeField(null=True)
    noticed_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True, db_index=True)
    waiting = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["name", "target"], condition=models.Q(resolved_at=None), name="telemetry_one_open_alert"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.target}".strip()

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.target

    @property
    def state(self) -> str:
        return "pending" if self.fired_at is None else "firing" if self.resolved_at is None else "resolved"
