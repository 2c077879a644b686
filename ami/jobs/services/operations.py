"""Operations on a job: create, run, retry, cancel. API, admin and other apps are thin wrappers around them."""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from ami.celery import leases
from ami.celery import origin as origins
from ami.jobs.errors import NotAllowed
from ami.jobs.models import Job
from ami.jobs.models.states import FINAL, DispatchMode, JobStatus
from ami.jobs.services import job_completion, stored_results
from ami.jobs.services.image_settlement import reset_images
from ami.jobs.services.job_kinds import kind_of
from ami.jobs.services.transitions import move, reopen
from ami.ml.services.service_choice import best_service
from ami.queues.publish import PublishedTask, publish_for_user

#: The task that runs one slice of a job.
RUN_JOB = "ami.jobs.tasks.run_job"


def create(kind: str, project: Any, *, name: str, params: dict[str, Any] | None = None, **relations: Any) -> Job:
    """Create a job without starting it; ``relations`` are fields of `Job`. Its dispatch mode is fixed here.

    Raises:
        UnknownKind: no code is registered for this kind.
    """
    kind_of(kind)
    relations.setdefault("dispatch_mode", dispatch_mode_for(kind, project))
    return Job.objects.create(job_type_key=kind, project=project, name=name[:255], params=params or {}, **relations)


def dispatch_mode_for(kind: str, project: Any) -> DispatchMode:
    """Return the dispatch mode of a new job: ml jobs are pulled unless the project's flag disables it."""
    if kind != "ml":
        return DispatchMode.INTERNAL
    flags = project.feature_flags or {}
    return DispatchMode.ASYNC_API if flags.get("async_pipeline_workers", True) else DispatchMode.SYNC_API


def create_and_enqueue(
    kind: str,
    project: Any,
    *,
    name: str,
    params: dict[str, Any] | None = None,
    origin: str | None = None,
    **relations: Any,
) -> tuple[Job, PublishedTask]:
    """Create a job with the call of its first slice, both or neither; ``origin`` defaults to a person.

    The broker may be away: the call is a row.

    Raises:
        UnknownKind: no code is registered for this kind.
    """
    with transaction.atomic():
        job = create(kind, project, name=name, params=params, **relations)
        return job, run(job, origin=origin)


def run(job: Job, *, origin: str | None = None) -> PublishedTask:
    """Start the job; a final one starts over from the beginning, a running one only gets another message.

    Raises:
        NotAllowed: the job is being cancelled.
    """
    with transaction.atomic():
        job.refresh_from_db()
        if job.status == JobStatus.CANCELING:
            raise NotAllowed(f"Job {job.pk} is being cancelled; wait until it is REVOKED, then run it again.")
        if job.status in FINAL:
            _start_over(job)
        else:
            move(job, JobStatus.PENDING, scheduled_at=_due(job))
        return _enqueue(job, origin)


def retry(job: Job, *, origin: str | None = None) -> PublishedTask:
    """Run a final job again from its cursor: only its failed and unfinished images.

    Raises:
        NotAllowed: the job is not final.
    """
    with transaction.atomic():
        job.refresh_from_db()
        if job.status not in FINAL:
            raise NotAllowed(f"Job {job.pk} is {job.status}; only a finished job can be retried.")
        reset_images(job.pk, everything=False)
        cursor = {key: value for key, value in job.cursor.items() if key != "stream"}
        reopen(job, cursor=cursor, tries=0, result=None, scheduled_at=None)
        return _enqueue(job, origin)


def cancel(job: Job) -> bool:
    """Cancel the job: immediately if its lease is free, else at the worker's next step. False if it is already final.

    The move to REVOKED requires a free lease, so that no worker writes to a final job.
    """
    move(job, JobStatus.CANCELING)
    return finish_cancel(job) or job.status == JobStatus.CANCELING


def finish_cancel(job: Job, *, holder: str = "") -> bool:
    """Move a job that is being cancelled to REVOKED; ``holder`` is the run that holds its lease and stops now."""
    free = leases.is_free() | Q(holder=holder)
    job.refresh_from_db()
    if job.status != JobStatus.CANCELING or not move(job, JobStatus.REVOKED, when=free):
        return False
    job.log("Cancelled.")
    if job.dispatch_mode == DispatchMode.ASYNC_API:
        job_id = job.pk
        transaction.on_commit(lambda: job_completion.clean_up(job_id))
    return True


def _start_over(job: Job) -> None:
    reset_images(job.pk, everything=True)
    stored_results.delete_handled(job.pk)
    reopen(
        job,
        cursor={},
        tries=0,
        done=0,
        total=0,
        result=None,
        collected_at=None,
        started_at=None,
        scheduled_at=_due(job),
    )


def _due(job: Job) -> datetime | None:
    return timezone.now() + timedelta(seconds=job.delay) if job.delay else None


def run_job_arguments(job: Job) -> dict[str, Any]:
    """Return the arguments of `RUN_JOB` for a job: whose turn it is, and which service it calls."""
    return {"job_id": job.pk, "project_id": job.project_id, "service_id": _service(job)}


def _service(job: Job) -> int | None:
    """Return the key of the processing service that a push job calls; None for another one, or without a service."""
    if job.dispatch_mode != DispatchMode.SYNC_API or job.pipeline is None:
        return None
    service = best_service(job.pipeline, job.project_id)
    return service.pk if service else None


def _enqueue(job: Job, origin: str | None) -> PublishedTask:
    is_long = kind_of(job.job_type_key).is_long
    published = publish_for_user(RUN_JOB, origin=origin or origins.PERSON, is_long=is_long, **run_job_arguments(job))
    Job.objects.filter(pk=job.pk).update(queued_at=timezone.now(), queued_times=1)
    Job.objects.filter(pk=job.pk, holder="").update(task_id=published.task_id)
    job.log(f"Queued on {published.queue}.", task_id=published.task_id)
    return published
