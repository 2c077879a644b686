"""One posted result: its body, here or in storage, and the record of its handling."""

from django.db import models
from django.db.models import Q


class StoredResult(models.Model):
    """An accepted result; it is handled exactly once, however often it is posted or delivered."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="stored_results")
    key = models.CharField(max_length=255, unique=True)
    name = models.CharField(
        max_length=255, blank=True, help_text='of the body in the storage "results"; empty: it is in this row'
    )
    body = models.BinaryField(null=True, help_text="compressed by gzip; NULL: it is in the storage")
    size_bytes = models.PositiveBigIntegerField(help_text="compressed")
    text_bytes = models.PositiveBigIntegerField(null=True, blank=True, help_text="uncompressed; NULL: unknown")
    reply_subject = models.CharField(max_length=1024, blank=True)
    task_id = models.CharField(max_length=255, blank=True, help_text="with which the client was answered")
    batch_id = models.CharField(
        max_length=255, blank=True, db_default="", help_text="id of the message that handles it, alone or with others"
    )
    publishes = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True, blank=True)
    handled_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["job", "created_at"],
                name="jobs_result_unhandled",
                condition=Q(handled_at__isnull=True),
            ),
            models.Index(fields=["handled_at"]),
        ]

    def __str__(self) -> str:
        return self.key
