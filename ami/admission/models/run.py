"""A run of one call, or of all calls of one key: sent to the broker, or running."""

from django.db import models
from django.db.models.functions import Now


class Run(models.Model):
    """The row is there from the pick to the end. It holds the key and the permit: deleting it frees both.

    ``call`` is the row of the call that its message is about. ``key`` is null once other runs of its key may be sent.
    ``weight`` is that of its fair key: its seconds count so much less.
    ``sent_at`` is when its message was sent, that of an unconfirmed one the first time.
    ``worker`` is the start of a worker (`ami.celery.connection_names`), ``delivery`` the one message that began it.
    """

    class State(models.TextChoices):
        SENT = "sent"
        RUNNING = "running"

    id = models.CharField(max_length=32, primary_key=True)
    call = models.BigIntegerField()
    task = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - null is equal to nothing
    permit_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - null is equal to nothing
    permit_number = models.PositiveIntegerField(null=True)
    permit_cost = models.PositiveIntegerField(default=1, db_default=1)
    fair_key = models.CharField(max_length=255, blank=True)
    weight = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=16, choices=State.choices, default=State.SENT)
    worker = models.CharField(max_length=255, blank=True)
    delivery = models.CharField(max_length=32, blank=True)
    sends = models.PositiveIntegerField(default=1)
    confirmed_at = models.DateTimeField(null=True)
    send_again_at = models.DateTimeField(help_text="when its message is sent again unless it has begun")
    sent_at = models.DateTimeField(db_default=Now())
    began_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key"], name="admission_one_run_per_key"),
            models.UniqueConstraint(fields=["permit_key", "permit_number"], name="admission_one_run_per_permit"),
        ]
        indexes = [models.Index(fields=["queue"], name="admission_run_queue")]

    def __str__(self) -> str:
        return f"{self.task} {self.id}"
