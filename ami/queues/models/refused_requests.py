"""How many requests to the API were refused."""

from django.conf import settings
from django.db import models


class RefusedRequests(models.Model):
    """The changes that one user asked for in one hour, and that the API answered with one status of 400 or more."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    status = models.PositiveSmallIntegerField()
    hour = models.DateTimeField()
    requests = models.PositiveBigIntegerField(default=1)
    last = models.CharField(max_length=255, help_text="what the latest of them asked for")

    class Meta:
        verbose_name = "refused requests"
        verbose_name_plural = "refused requests"
        constraints = [
            models.UniqueConstraint(fields=["hour", "user", "status"], name="queues_one_count_of_refusals"),
        ]

    def __str__(self) -> str:
        return f"{self.requests} requests of user {self.user_id} answered {self.status}"
