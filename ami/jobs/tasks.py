"""The tasks of the app `jobs`: slices, results, audits and reprocessing; thin wrappers around `ami.jobs.services`."""

from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery import Task, shared_task
from celery.exceptions import TaskPredicate
from django.db import InterfaceError, OperationalError
from django.db.models import Q
from kombu.exceptions import OperationalError as BrokerError

from ami.admission.policies import Permits, Unique
from ami.celery import staged_runs
from ami.environment.deferred import deferred
from ami.jobs.errors import NatsUnavailable, ResultMissing
from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services import db_interrupt, job_slice, progress, stored_results
from ami.jobs.services.reprocess_jobs import create_jobs
from ami.jobs.services.transitions import move
from ami.ml.models import Pipeline
from ami.queues.publish import publish_successor, republish
from ami.queues.slices import Slice

if TYPE_CHECKING:
    from ami.jobs.services import audits, ingest
else:
    audits, ingest = deferred("ami.jobs.services.audits"), deferred("ami.jobs.services.ingest")

#: Push jobs that call one processing service at the same time: one waits for it while the other one saves.
MOST_JOBS_OF_A_SERVICE = 2
RUN_TRIES = 3
MISSING_TRIES = 3
LONGEST_WAIT_SECONDS = 60

#: Header: how many times in a row the job's message has waited for NATS.
WAITS_HEADER = "antenna_waits"


@shared_task(
    bind=True,
    name="ami.jobs.tasks.run_job",
    triggered_by="people (API, admin), audit_jobs, its own last slice",
    max_retries=RUN_TRIES,
    unique=Unique(by=("job_id", "project_id", "service_id"), on_conflict="reschedule_once"),
    permits=Permits(MOST_JOBS_OF_A_SERVICE, per="service_id", name="jobs of a service"),
    fair_by="project_id",
    ignore_result=True,
)
def run_job(self: Task, job_id: int, project_id: int | None = None, service_id: int | None = None) -> None:
    """Run one slice of a job and publish the next, until the job is finished.

    ``service_id`` names the processing service that a push job calls.

    An error is retried three times, then the job fails and the message is buried. While NATS is unreachable the job
    waits without limit; this never fails it (hazard 11).
    """
    arguments = {"job_id": job_id, "project_id": project_id, "service_id": service_id}
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        raise self.retry(countdown=5, max_retries=MISSING_TRIES, exc=Job.DoesNotExist(f"There is no job {job_id}."))
    if wait := job_slice.seconds_to_wait(job):
        republish(self, countdown=wait, headers={WAITS_HEADER: 0}, **arguments)
        return
    try:
        piece = Slice(self, what=f"job {job_id}")
        if job_slice.run_slice(job, str(self.request.id), piece) is job_slice.Next.SUCCESSOR:
            publish_successor(self, **arguments)
    except TaskPredicate:
        raise
    except NatsUnavailable as error:
        job.log(f"Waiting for NATS: {error}", level="WARNING")
        waits = _waits(self)
        republish(self, countdown=_backoff(waits), headers={WAITS_HEADER: waits + 1}, **arguments)
    except Exception as error:
        # Any error of a kind's code fails this job, not the worker.
        if isinstance(error, SoftTimeLimitExceeded):
            db_interrupt.reset_connection()
        _retry_or_fail(self, job, error)


def _retry_or_fail(task: Task, job: Job, error: Exception) -> None:
    # The message's retry count includes lost children and hard time limits, and ends with the slice. Only the job's own
    # count of errors decides.
    tries, unclaimed = job.tries, Q(holder="")
    if tries < RUN_TRIES:
        if not Job.objects.filter(unclaimed, pk=job.pk).update(tries=tries + 1):
            return  # Another run has claimed the job since.
        move(job, JobStatus.RETRY, when=unclaimed)
        job.log(f"Retrying after {type(error).__name__}: {error}", level="WARNING")
        raise task.retry(countdown=_backoff(tries), max_retries=task.request.retries + 1, exc=error) from error
    job_slice.fail(job, f"{type(error).__name__}: {error}")
    raise error


def _waits(task: Task) -> int:
    return int((task.request.headers or {}).get(WAITS_HEADER) or 0)


def _backoff(tries: int) -> float:
    return float(min(LONGEST_WAIT_SECONDS, 2 ** min(tries + 1, 10)))


def _record_failure(
    self: Task,  # noqa: ARG001
    exc: Exception,
    task_id: str,  # noqa: ARG001
    args: Any,  # noqa: ARG001
    kwargs: dict[str, Any],
    einfo: Any,  # noqa: ARG001
) -> None:
    """Record on the stored results that their message was buried."""
    error = f"{type(exc).__name__}: {exc}"
    if key := kwargs.get("result_key"):
        stored_results.mark_failed(error, key=key)
    if keys := kwargs.get("result_ids"):
        stored_results.mark_failed(error, pk__in=keys)


@shared_task(
    name="ami.jobs.tasks.process_nats_pipeline_result",
    triggered_by="process_nats_pipeline_results",
    autoretry_for=(OperationalError, InterfaceError, OSError, ResultMissing, SoftTimeLimitExceeded),
    retry_backoff=2,
    retry_backoff_max=120,
    max_retries=5,
    ignore_result=True,
    on_failure=_record_failure,
)
def process_nats_pipeline_result(job_id: int, result_key: str, reply_subject: str | None = None) -> None:
    """Save one stored result of a pull worker by its key.

    It is a message: a call that is a row would cost more than the result.
    """
    with db_interrupt.cancel_query_on_soft_limit():
        ingest.handle(job_id, result_key, reply_subject)


@shared_task(
    bind=True,
    name="ami.jobs.tasks.process_nats_pipeline_results",
    triggered_by="pull workers (POST jobs/ID/result/), audit_stored_results",
    max_retries=5,
    fair_by="project_id",
    ignore_result=True,
    on_failure=_record_failure,
)
def process_nats_pipeline_results(
    self: Task, job_id: int, result_ids: list[int], tries: int = 0, project_id: int | None = None
) -> None:
    """Save stored results of one job together.

    ``tries`` counts the retries after errors of the services. A call that was started before, or was retried more
    often, ended its process: each of its results then gets a call of its own.
    """
    if self.request.retries > tries or staged_runs.was_started_before(self.request):
        ingest.split_batch(job_id, result_ids)
        return
    try:
        with db_interrupt.cancel_query_on_soft_limit():
            ingest.handle_batch(job_id, result_ids)
    except (*ingest.TRANSIENT, OSError, BrokerError) as error:
        arguments = {"job_id": job_id, "result_ids": result_ids, "tries": tries + 1, "project_id": project_id}
        raise self.retry(kwargs=arguments, countdown=_backoff(tries), exc=error) from error


@shared_task(name="ami.jobs.tasks.audit_jobs", triggered_by="beat", ignore_result=True)
def audit_jobs() -> dict[str, dict[str, int]]:
    """Repair jobs: stalled leases, lost images, complete but unfinished jobs, orphan streams."""
    return audits.audit_jobs()


@shared_task(name="ami.jobs.tasks.audit_stored_results", triggered_by="beat", ignore_result=True)
def audit_stored_results() -> dict[str, int]:
    """Publish accepted but unhandled results again."""
    return audits.audit_stored_results()


@shared_task(name="ami.jobs.tasks.audit_data_integrity", triggered_by="beat", ignore_result=True)
def audit_data_integrity() -> dict[str, int]:
    """Count inconsistent rows, some of each table per run; store jobs' image counts."""
    return {**audits.audit_data_integrity(), "job_counts_stored": progress.store_counts(100)}


@shared_task(name="ami.jobs.tasks.jobs_health_check", triggered_by="beat", ignore_result=True)
def jobs_health_check() -> dict[str, dict[str, int]]:
    """Run the audits; return the platform's four sections with counts of checked, fixed and unfixable."""
    return audits.health_check()


@shared_task(
    bind=True,
    name="ami.ml.tasks.reprocess_captures",
    triggered_by="people (admin)",
    autoretry_for=(OperationalError, InterfaceError),
    retry_backoff=2,
    max_retries=3,
    outbox=True,
    ignore_result=True,
)
def reprocess_captures(self: Task, source_image_ids: list[int], pipeline_id: int | None = None) -> None:
    """Create and start one job per project for these captures; a redelivered message creates no second one."""
    pipeline = Pipeline.objects.filter(pk=pipeline_id).first() if pipeline_id else None
    create_jobs(source_image_ids, pipeline, once=str(self.request.id), request=self.request)
