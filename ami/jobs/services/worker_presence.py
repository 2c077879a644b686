"""Says in a job's log that nobody is there to process its images."""

from datetime import timedelta

from django.utils import timezone

from ami.celery.shown_time import shown_time
from ami.jobs.models import Job
from ami.jobs.models.states import DispatchMode
from ami.ml.cold_start import UNSEEN_SECONDS
from ami.ml.models import ProcessingService


def warn_if_nobody_online(job: Job) -> bool:
    """Write a warning if no service that could process the job's images was seen; return whether it did.

    A pull job needs a service without an address that called within ``UNSEEN_SECONDS``; a push job one with an address
    that answered the last time. The job starts all the same: a worker may come later.
    """
    if job.pipeline is None or job.dispatch_mode == DispatchMode.INTERNAL:
        return False
    services = list(ProcessingService.objects.filter(pipelines=job.pipeline, projects=job.project_id).distinct())
    pulled = job.dispatch_mode == DispatchMode.ASYNC_API
    fitting = [service for service in services if bool(service.endpoint_url) != pulled]
    if any(_is_online(service, pulled=pulled) for service in fitting):
        return False
    kind = "pull" if pulled else "push"
    job.log(
        f"No worker online for this pipeline ('{job.pipeline.slug}'): {kind} services known: {len(fitting)}, "
        f"{_last_seen(fitting)}.",
        level="WARNING",
    )
    return True


def _is_online(service: ProcessingService, *, pulled: bool) -> bool:
    if not pulled:
        return service.last_seen_live is True
    recent = timezone.now() - timedelta(seconds=UNSEEN_SECONDS)
    return service.last_seen is not None and service.last_seen >= recent


def _last_seen(services: list[ProcessingService]) -> str:
    seen = [service.last_seen for service in services if service.last_seen]
    return f"last seen {shown_time(max(seen))}" if seen else "never seen"
