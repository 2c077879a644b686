"""Changes the status of a job by compare-and-set along a table of allowed transitions; the only place that does."""

from typing import Any

from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from ami.jobs.models import Job
from ami.jobs.models.states import ACTIVE, FINAL, FINALIZABLE, JobStatus
from ami.jobs.signals import job_status_changed

S = JobStatus

ALLOWED: dict[JobStatus, frozenset[JobStatus]] = {
    S.PENDING: frozenset({S.CREATED, S.UNKNOWN}),
    S.RECEIVED: frozenset({S.CREATED, S.PENDING, S.UNKNOWN}),
    S.STARTED: frozenset({S.CREATED, S.PENDING, S.RECEIVED, S.RETRY, S.UNKNOWN}),
    S.RETRY: frozenset({S.STARTED}),
    S.SUCCESS: FINALIZABLE | {S.RECEIVED},
    S.FAILURE: FINALIZABLE | {S.RECEIVED, S.UNKNOWN},
    S.CANCELING: frozenset(S) - FINAL - {S.CANCELING},
    S.REVOKED: frozenset({S.CREATED, S.PENDING, S.RECEIVED, S.CANCELING, S.UNKNOWN}),
}
"""Target status -> statuses it may be reached from. Only ``reopen`` leads out of a final status."""


def move(job: Job, to: JobStatus, *, when: Q | None = None, **fields: Any) -> bool:
    """Move the job to ``to`` if the table and ``when`` allow it from its current status in the database.

    ``fields`` are written in the same statement. A final status also clears the lease, so that a final job never has
    one. Returns whether this call moved the job; the signal is sent only then.
    """
    return _move(job, ALLOWED[to], to, when or Q(), fields)


def reopen(job: Job, **fields: Any) -> bool:
    """Move a final job back to PENDING, with ``fields`` written in the same statement."""
    empty = {"finished_at": None, "heartbeat_at": None, "image_counts": None}
    fields = {**empty, "holder": "", "until": None, **fields}
    return _move(job, FINAL, S.PENDING, Q(), fields)


def _move(job: Job, allowed: frozenset[JobStatus], to: JobStatus, when: Q, fields: dict[str, Any]) -> bool:
    """Compare-and-set from the row's current status; try again only if another writer changed it in between."""
    seen = None
    while True:
        now = Job.objects.filter(pk=job.pk).values_list("status", flat=True).first()
        if now not in allowed or now == seen:
            return False
        if _compare_and_set(job, JobStatus(now), to, when, fields):
            return True
        seen = now


def _compare_and_set(job: Job, old: JobStatus, to: JobStatus, when: Q, fields: dict[str, Any]) -> bool:
    values: dict[str, Any] = {"status": to, "updated_at": timezone.now()}
    if to in ACTIVE:
        values["started_at"] = Coalesce(F("started_at"), Now())
    if to in FINAL:
        values |= {"finished_at": timezone.now(), "holder": "", "until": None}
    if not Job.objects.filter(when, pk=job.pk, status=old).update(**values, **fields):
        return False
    job.refresh_from_db()
    job_status_changed.send(sender=Job, job_id=job.pk, old=str(old), new=str(to))
    return True
