"""The jobs that run, as the page of the queues shows them."""

from ami.jobs.models import Job
from ami.jobs.models.states import FINAL, JobStatus
from ami.jobs.services.progress import progress_of
from ami.telemetry.snapshots.shape import JobFigures

#: The newest; a deployment with more of them has its list of jobs.
MOST = 10


def running_jobs() -> list[JobFigures]:
    """Return the newest jobs that have begun or wait, with their progress; two statements."""
    jobs = list(
        Job.objects.exclude(status__in=[*FINAL, JobStatus.CREATED]).select_related("project").order_by("-pk")[:MOST]
    )
    shown = progress_of(jobs) if jobs else {}
    return [_figures(job, shown[job.pk]) for job in jobs]


def _figures(job: Job, shown: dict) -> JobFigures:
    current = next((stage for stage in shown["stages"] if stage["progress"] < 1.0), None)
    numbers = {param["key"]: param["value"] for stage in shown["stages"] for param in stage["params"]}
    return JobFigures(
        pk=job.pk,
        name=job.name,
        kind=job.job_type_key,
        project=str(job.project),
        status=str(JobStatus(job.status).label),
        stage=current["name"] if current else "",
        done=shown["summary"]["progress"],
        failed_images=int(numbers.get("failed", 0)),
    )
