"""Findings that last, and what was sent about them."""

from django.db import models


class Alert(models.Model):
    """One row per finding and target; times are the database's.

    ``since`` is the first look that showed it; ``absent_since`` the first that did not; ``noticed_at`` when the last
    notice was written; ``flaps`` how often it came back within an hour; ``resolved_at`` when it was over last.
    """

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        FIRING = "firing", "firing"
        RESOLVED = "resolved", "resolved"

    name = models.CharField(max_length=64, help_text="of the finding")
    target = models.CharField(max_length=255, blank=True)
    level = models.CharField(max_length=8)
    sentence = models.TextField(help_text="as of the last notice")
    state = models.CharField(max_length=8, choices=State.choices)
    since = models.DateTimeField()
    absent_since = models.DateTimeField(null=True)
    fired_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True, db_index=True)
    noticed_at = models.DateTimeField(null=True)
    flaps = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "target"], name="telemetry_one_alert_per_target")]

    def __str__(self) -> str:
        return f"{self.name} {self.target}".strip()


class AlertNotice(models.Model):
    """What one receiver gets about one alert: it waits until it is sent or given up. A sender claims it for a while."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="notices")
    receiver = models.CharField(max_length=16)
    event = models.CharField(max_length=8)
    body = models.JSONField()
    created_at = models.DateTimeField()
    tries = models.PositiveIntegerField(default=0)
    claimed_until = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    given_up_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["id"],
                condition=models.Q(sent_at=None, given_up_at=None),
                name="telemetry_notice_waits",
            )
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.receiver}"


class AlertReceiver(models.Model):
    """How a receiver is; ``failing_since`` is None while it works. ``error`` names no address."""

    name = models.CharField(max_length=16, primary_key=True)
    sent_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0, help_text="in a row")
    next_try_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=255, blank=True)

    def __str__(self) -> str:
        return self.name
