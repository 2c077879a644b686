"""A message that was given up, taken out of its dead-letter queue."""

from django.db import models


class Letter(models.Model):
    """One dead letter, with all that it takes to publish it again.

    ``identity`` is the same for every copy of one death: the publish id that our producer stamped and the deaths before
    it. A message of a stranger has no such id; it has a ``digest``, and is compared only when it is delivered again.
    """

    class State(models.TextChoices):
        """A letter that came back after its replay is DEAD again, with one death more."""

        DEAD = "dead"
        REPLAYED = "replayed"
        DISCARDED = "discarded"

    identity = models.CharField(max_length=120, unique=True)
    digest = models.CharField(max_length=64, blank=True, db_index=True)
    is_settled = models.BooleanField(default=False, help_text="acknowledged after it was written")
    queue = models.CharField(max_length=255, help_text="the dead-letter queue that it was in")
    state = models.CharField(max_length=16, choices=State.choices, default=State.DEAD)
    task_id = models.CharField(max_length=255, db_index=True)
    task = models.CharField(max_length=255)
    reason = models.CharField(max_length=255)
    detail = models.CharField(max_length=500, blank=True)
    retries = models.PositiveIntegerField(default=0)
    arguments = models.CharField(max_length=255, blank=True, help_text="as they may be shown")
    body = models.BinaryField()
    content_type = models.CharField(max_length=255, blank=True)
    content_encoding = models.CharField(max_length=255, blank=True)
    headers = models.TextField(help_text="JSON, without those of its deaths")
    properties = models.TextField(help_text="JSON")
    deaths = models.TextField(blank=True, help_text="JSON: what the broker and the workers said of each death")
    died = models.PositiveIntegerField(default=1, help_text="how often, its replays included")
    collected_at = models.DateTimeField(help_text="the database's time of its last death")
    replayed_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "dead letter"
        indexes = [
            models.Index(fields=["state", "queue", "id"], name="queues_letter_waiting"),
            models.Index(fields=["state", "collected_at"], name="queues_letter_old"),
        ]
        permissions = [("replay_letter", "Can replay dead letters"), ("discard_letter", "Can discard dead letters")]

    def __str__(self) -> str:
        return f"{self.task} {self.task_id}"
