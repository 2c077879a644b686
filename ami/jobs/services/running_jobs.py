"""The jobs that run, as the page of the queues shows them."""

from collections import Counter

from django.db.models import Count, QuerySet

from ami.jobs.models import Job
from ami.jobs.models.states import FINAL, JobStatus
from ami.jobs.services import job_kinds
from ami.jobs.services.pace import Pace, running_paces
from ami.jobs.services.progress import progress_of
from ami.telemetry.snapshots.shape import JobFigures

#: The newest; a deployment with more of them has its list of jobs.
MOST = 10


def running_jobs() -> list[JobFigures]:
    """Return the newest jobs that have begun or wait, with their progress and pace; three statements."""
    jobs = list(_begun().select_related("project").order_by("-pk")[:MOST])
    shown = progress_of(jobs) if jobs else {}
    paces = running_paces(jobs, shown)
    return [_figures(job, shown[job.pk], paces[job.pk]) for job in jobs]


def job_counts() -> dict[tuple[str, str], int]:
    """Return how many jobs have begun or wait, by kind and status; one statement."""
    found: Counter[tuple[str, str]] = Counter()
    known = job_kinds.registered_keys()
    for kind, status, count in _begun().order_by().values_list("job_type_key", "status").annotate(count=Count("pk")):
        found[kind if kind in known else "other", str(status)] += count
    return dict(found)


def _begun() -> QuerySet[Job]:
    return Job.objects.exclude(status__in=[*FINAL, JobStatus.CREATED])


def _figures(job: Job, shown: dict, speed: Pace) -> JobFigures:
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
        images_per_second=speed.images_per_second,
        left_seconds=speed.left_seconds,
    )
