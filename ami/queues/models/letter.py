"""A message that was given up, taken out of its dead-letter queue."""

from django.db import models

from ami.celery.shown_time import shown_time


class Letter(models.Model):
    """One dead letter, with all that it takes to publish it again.

    ``identity`` is the same for every copy of one death: the publish id that our producer stamped and the deaths before
    it. A message of a stranger has no such id; it has a ``digest``, and is compared only when it is delivered again.
    """

    class State(models.TextChoices):
        """A letter that came back after its replay is DEAD again, with one death more; one whose task then succeeded is
        DONE. SET_ASIDE is no dead letter: its task is disabled, and it waits until that is enabled.
        """

        DEAD = "dead"
        REPLAYED = "replayed"
        DONE = "done"
        DISCARDED = "discarded"
        SET_ASIDE = "set aside"

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
    cause = models.CharField(max_length=40, blank=True, help_text="of its last failure, as in TaskFailure")
    exception = models.CharField(max_length=255, blank=True)
    place = models.CharField(max_length=255, blank=True)
    cause_text = models.CharField(max_length=255, blank=True)
    job = models.CharField(max_length=64, blank=True, help_text="of one that is set aside: the job it belongs to")
    body = models.BinaryField(help_text="as it is published again; empty where body_name names a file")
    body_name = models.CharField(max_length=255, blank=True, help_text="in the storage for letters")
    body_bytes = models.PositiveBigIntegerField(default=0)
    original = models.BinaryField(null=True, help_text="the first body, where somebody has edited it")
    content_type = models.CharField(max_length=255, blank=True)
    content_encoding = models.CharField(max_length=255, blank=True)
    headers = models.TextField(help_text="JSON, without those of its deaths")
    properties = models.TextField(help_text="JSON")
    deaths = models.TextField(blank=True, help_text="JSON: what the broker and the workers said of each death")
    died = models.PositiveIntegerField(default=1, help_text="how often, its replays included")
    replay = models.ForeignKey(
        "queues.Replay", null=True, on_delete=models.SET_NULL, db_index=False, help_text="its last one"
    )
    first_reason = models.CharField(max_length=255, blank=True)
    first_collected_at = models.DateTimeField(help_text="the database's time of its first death")
    collected_at = models.DateTimeField(help_text="the database's time of its last death")
    replayed_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "dead letter"
        indexes = [
            models.Index(fields=["state", "queue", "id"], name="queues_letter_waiting"),
            models.Index(fields=["state", "collected_at"], name="queues_letter_old"),
            models.Index(fields=["state", "cause", "collected_at"], name="queues_letter_cause"),
        ]
        permissions = [
            ("replay_letter", "Can replay dead letters"),
            ("discard_letter", "Can discard dead letters"),
            ("edit_letter", "Can replay dead letters with other arguments"),
            ("read_letter_body", "Can read the message of a dead letter with its secrets"),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.task_id}"


class LetterEvent(models.Model):
    """What became of a letter after its first death: the trail on its page."""

    class What(models.TextChoices):
        REPLAYED = "replayed"
        EDITED = "edited"
        DIED = "died again"
        DONE = "done"
        DISCARDED = "discarded"

    letter = models.ForeignKey(Letter, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(help_text="the database's time")
    what = models.CharField(max_length=16, choices=What.choices)
    by = models.CharField(max_length=255, blank=True)
    why = models.CharField(max_length=500, blank=True)
    detail = models.CharField(max_length=500, blank=True, help_text="the queue, the reason, or the new arguments")

    class Meta:
        verbose_name = "event of a letter"
        ordering = ("pk",)

    def __str__(self) -> str:
        return f"{shown_time(self.at)} {self.what}"
