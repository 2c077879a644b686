"""A job's log: append-only rows."""

import logging
from typing import Any

from django.db import DatabaseError, models, transaction

from ami.celery import storable
from ami.queues.redaction import redact_text

logger = logging.getLogger(__name__)

MAX_MESSAGE = 10_000


class JobLog(models.Model):
    """One line about a job."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="log_entries")
    level = models.CharField(max_length=16, default="INFO")
    message = models.TextField()
    context = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [
            models.Index(fields=["job", "-created_at"]),
            models.Index(fields=["created_at"], name="jobs_joblog_age"),
        ]

    def __str__(self) -> str:
        return f"{self.level} {self.message[:80]}"

    @classmethod
    def append(cls, job_id: int, message: str, *, level: str = "INFO", context: dict[str, Any] | None = None) -> None:
        """Insert one line in a savepoint; a refused line is logged and never raises (incident 36)."""
        message = _clean(message)
        logger.log(
            logging.getLevelName(level) if level in logging.getLevelNamesMapping() else logging.INFO,
            "job %s: %s",
            job_id,
            redact_text(message[:MAX_MESSAGE]),
        )
        try:
            with transaction.atomic():
                # PostgreSQL checks the foreign key only at commit, where it would abort the caller's transaction.
                if not cls._meta.get_field("job").related_model.objects.filter(pk=job_id).exists():
                    return
                cls.objects.create(job_id=job_id, level=level, message=message, context=context or {})
        except (DatabaseError, TypeError, ValueError, RecursionError) as error:
            logger.warning("Job log line of job %s not written: %r", job_id, error, extra={"job": job_id})


def _clean(message: str) -> str:
    """Remove secrets, links and NUL characters (PostgreSQL refuses them), and bound the length."""
    return redact_text(storable.text(message.replace("\x00", ""), 2 * MAX_MESSAGE))[:MAX_MESSAGE]
