"""What outlives a run: the rate of a key, its share of the work, how long it stays unique, and who is next."""

from django.db import models
from django.db.models.functions import Now


class Bucket(models.Model):
    """A rate limit of one key by GCRA: ``arrival`` is when its next call is due by the rate, in epoch seconds."""

    key = models.CharField(max_length=255, primary_key=True)
    arrival = models.FloatField()

    def __str__(self) -> str:
        return self.key


class Share(models.Model):
    """The work of one fair key in one queue: ``used`` is the seconds of its runs over its weight, as virtual time."""

    queue = models.CharField(max_length=255)
    fair_key = models.CharField(max_length=255)
    used = models.FloatField(default=0.0)
    used_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "fair_key"], name="admission_one_share_per_key")]

    def __str__(self) -> str:
        return f"{self.queue} {self.fair_key}"


class RecentKey(models.Model):
    """A key whose last run succeeded and that stays unique ``until`` then."""

    key = models.CharField(max_length=255, primary_key=True)
    until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key


class Reservation(models.Model):
    """The call for which the permits of a key are kept ``until`` then: it takes more than one, and found too few.

    The dispatchers of all queues pick no other call of the key.
    """

    permit_key = models.CharField(max_length=255, primary_key=True)
    call = models.BigIntegerField()
    until = models.DateTimeField()

    def __str__(self) -> str:
        return self.permit_key
