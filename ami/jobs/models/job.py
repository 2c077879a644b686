"""The job row: its request, status, cursor, and the lease of the worker that runs it."""

from typing import Any

from django.db import models
from django.utils import timezone

from ami.celery import leases
from ami.jobs.errors import JobStopped
from ami.jobs.models.states import ACTIVE, FINAL, DispatchMode, JobStatus

LEASE_SECONDS = 420
"""Longer than any hard time limit of the queues that run jobs; a redelivered message re-claims without waiting."""

GUARDED = frozenset(
    {
        "status",
        "started_at",
        "finished_at",
        "holder",
        "until",
        "heartbeat_at",
        "cursor",
        "done",
        "tries",
        "queued_at",
        "queued_times",
        "image_counts",
        "served_at",
    }
)
"""Columns that ``save()`` never writes on an existing row; each is written by a statement of its own."""


class Job(models.Model):
    """One piece of long work; its status changes by compare-and-set, its progress is derived from rows."""

    name = models.CharField(max_length=255)
    project = models.ForeignKey("main.Project", on_delete=models.CASCADE, related_name="jobs")
    job_type_key = models.CharField(max_length=255, default="unknown")
    status = models.CharField(max_length=16, choices=JobStatus.choices, default=JobStatus.CREATED, editable=False)
    dispatch_mode = models.CharField(max_length=16, choices=DispatchMode.choices, default=DispatchMode.INTERNAL)
    task_id = models.CharField(max_length=255, blank=True, editable=False)
    delay = models.PositiveIntegerField(default=0, help_text="seconds to wait before the work begins")
    limit = models.PositiveIntegerField(null=True, blank=True, help_text="at most this many images")
    shuffle = models.BooleanField(default=True)
    params = models.JSONField(default=dict, blank=True)
    result = models.JSONField(null=True, blank=True)
    deployment = models.ForeignKey(
        "main.Deployment", on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs"
    )
    pipeline = models.ForeignKey("ml.Pipeline", on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs")
    source_image_collection = models.ForeignKey(
        "main.SourceImageCollection", on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs"
    )
    source_image_single = models.ForeignKey(
        "main.SourceImage", on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs"
    )
    cursor = models.JSONField(default=dict, blank=True, editable=False)
    done = models.PositiveBigIntegerField(default=0, editable=False)
    total = models.PositiveBigIntegerField(default=0, editable=False)
    collected_at = models.DateTimeField(null=True, blank=True, editable=False)
    image_counts = models.JSONField(null=True, editable=False, help_text="of a final job whose images do not change")
    tries = models.PositiveSmallIntegerField(default=0, editable=False, help_text="errors of this run so far")
    queued_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="last published before it began")
    queued_times = models.PositiveSmallIntegerField(default=0, editable=False, help_text="published before it began")
    holder = models.CharField("holder of the lease", max_length=255, blank=True, editable=False)
    until = models.DateTimeField("end of the lease", null=True, blank=True, editable=False)
    served_at = models.DateTimeField(null=True, editable=False, help_text="when the last turn of a pull job began")
    heartbeat_at = models.DateTimeField(null=True, blank=True, editable=False)
    scheduled_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["status", "until"]), models.Index(fields=["project", "-created_at"])]

    #: No column: the holder as which the run in this process holds the lease. Reading the row again keeps it, where
    #: ``holder`` becomes that of a run which has taken the job over. Empty outside a run.
    held_as: str = ""

    def __str__(self) -> str:
        return f"#{self.pk} {self.name} ({self.job_type_key})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the editable columns; an existing row keeps its guarded columns."""
        if not self._state.adding:
            given = kwargs.get("update_fields")
            fields = set(given) if given is not None else {f.name for f in self._meta.concrete_fields if f.name != "id"}
            kwargs["update_fields"] = (fields - GUARDED - {"created_at"}) | {"updated_at"}
        super().save(*args, **kwargs)

    @property
    def is_final(self) -> bool:
        """Whether the job is over until it is run again."""
        return self.status in FINAL

    def save_progress(
        self, *, cursor: dict[str, Any] | None = None, done: int | None = None, total: int | None = None
    ) -> None:
        """Store the cursor and counts, and renew the lease and the heartbeat.

        Raises:
            JobStopped: the job is no longer active, or another worker has its lease; stop working on it.
        """
        now = timezone.now()
        values: dict[str, Any] = {"heartbeat_at": now, "updated_at": now}
        given = {"cursor": cursor, "done": done, "total": total}
        values |= {name: value for name, value in given.items() if value is not None}
        mine = Job.objects.filter(pk=self.pk, status__in=ACTIVE)
        is_mine = leases.renew(mine, self.held_as, LEASE_SECONDS, **values) if self.held_as else mine.update(**values)
        if not is_mine:
            raise JobStopped(f"Job {self.pk} is no longer active.")
        for name, value in values.items():
            setattr(self, name, value)

    def log(self, message: str, *, level: str = "INFO", **context: Any) -> None:
        """Append a line to the job's log; see `ami.jobs.models.log.JobLog.append`."""
        from ami.jobs.models.log import JobLog

        JobLog.append(self.pk, message, level=level, context=context)
