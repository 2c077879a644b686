"""One posted result: its body is in storage, this row records its handling."""

from django.db import models
from django.db.models import Q


class StoredResult(models.Model):
    """An accepted result; it is handled exactly once, however often it is posted or delivered."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="stored_results")
    key = models.CharField(max_length=255, unique=True)
    name = models.CharField(max_length=255, help_text='of the body in the storage "results"')
    size_bytes = models.PositiveBigIntegerField(help_text="compressed")
    reply_subject = models.CharField(max_length=1024, blank=True)
    task_id = models.CharField(max_length=255, blank=True)
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
