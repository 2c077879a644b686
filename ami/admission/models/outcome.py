"""What became of calls that did not run as themselves."""

from django.db import models


class Outcome(models.Model):
    """How many calls of a task were merged or dropped in one hour, and why."""

    class Why(models.TextChoices):
        MERGED = "merged", "merged into the run of another call of its key"
        RAN = "ran", "dropped: another call of its key ran meanwhile"
        RAN_LATELY = "ran lately", "dropped: another call of its key had run lately"
        EXPIRED = "expired", "expired before it was sent"

    task = models.CharField(max_length=255)
    why = models.CharField(max_length=16, choices=Why.choices)
    hour = models.DateTimeField()
    calls = models.PositiveBigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hour", "task", "why"], name="admission_one_outcome_per_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.why} {self.calls}"
