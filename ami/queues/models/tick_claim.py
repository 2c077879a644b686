"""The last claimed tick of an entry of beat's schedule."""

from django.db import models
from django_celery_beat.models import PeriodicTask

from ami.celery.tick_claims import MISFIRES, NONE


class TickClaim(models.Model):
    """One row per entry, changed only by conditional updates on ``number`` and ``tries``."""

    # No constraint: an entry may be deleted while a beat claims its tick.
    entry = models.OneToOneField(
        PeriodicTask, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False
    )
    number = models.PositiveBigIntegerField(default=0, help_text="ticks claimed so far")
    task_id = models.CharField(max_length=255, default="")
    claimed_at = models.DateTimeField(null=True)
    claimed_since = models.DateTimeField(null=True, help_text="the same by the database's clock")
    claimed_by = models.CharField(max_length=255, default="", help_text="the beat, as host:pid")
    runs = models.PositiveBigIntegerField(default=0, help_text="the entry's total run count with this tick")
    is_sent = models.BooleanField(default=True)
    tries = models.PositiveIntegerField(default=0, help_text="how often this tick was claimed again")
    ended_at = models.DateTimeField(null=True, help_text="when the task of this tick ended")
    ends = models.PositiveBigIntegerField(default=0, help_text="how many ticks are known to have ended")
    misfire = models.CharField(
        max_length=8,
        default=NONE,
        db_default=NONE,
        choices=[(each, each) for each in MISFIRES],
        help_text="what becomes of ticks that could not be sent or run in time: nothing, one for all of them, or each",
    )
    repeats = models.PositiveBigIntegerField(default=0, help_text="how often a tick of this entry was sent again")

    class Meta:
        verbose_name = "claimed tick"

    def __str__(self) -> str:
        return f"tick {self.number} of entry {self.pk}"
