"""A replay of many dead letters, which may take a while."""

from django.db import models


class Replay(models.Model):
    """Which letters, where to, how fast, and how far it is.

    ``holder`` publishes until ``until``, by the database's clock; after that any process may go on, from ``last_pk``.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        STOPPED = "stopped"
        ENDED = "ended"

    selection = models.JSONField(help_text="which letters: queue, task, cause, search, ids")
    destination = models.CharField(max_length=255, blank=True, help_text="a queue; empty: where each task belongs")
    rate = models.FloatField(null=True, help_text="letters per second; empty: as fast as the broker confirms")
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING)
    total = models.PositiveIntegerField()
    done = models.PositiveIntegerField(default=0)
    last_pk = models.BigIntegerField(default=0)
    most_pk = models.BigIntegerField(help_text="letters that are written later are not replayed")
    by = models.CharField(max_length=255)
    why = models.CharField(max_length=500, blank=True)
    error = models.CharField(max_length=500, blank=True, help_text="why it stopped by itself")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    holder = models.CharField(max_length=255, blank=True)
    until = models.DateTimeField()

    class Meta:
        verbose_name = "replay of dead letters"

    def __str__(self) -> str:
        return f"Replay {self.pk}: {self.done} of {self.total}"
