"""The job kind `ml`: runs a pipeline over images."""

from typing import TYPE_CHECKING

from ami.environment.deferred import deferred
from ami.jobs.models import Job
from ami.jobs.models.states import DispatchMode
from ami.jobs.services.job_completion import complete_if_settled
from ami.jobs.services.job_images import collect
from ami.jobs.services.job_kinds import SliceOfWork, job_kind
from ami.jobs.services.pull_dispatch import dispatch

if TYPE_CHECKING:
    from ami.jobs.services import expected_results, push_dispatch
else:
    expected_results = deferred("ami.jobs.services.expected_results")
    push_dispatch = deferred("ami.jobs.services.push_dispatch")


def finish(job: Job) -> None:
    """Finish the job if all images are settled; otherwise the last result or the audit finishes it."""
    complete_if_settled(job.pk)


@job_kind("ml", stages=("collect", "process", "results"), finish=finish, per_image=True)
def advance(job: Job, work: SliceOfWork) -> bool:
    """Collect the images, then dispatch them; return whether all are dispatched.

    Raises:
        NatsUnavailable: try again later.
        PipelineNotConfigured: the job has no pipeline, or no service runs it.
    """
    expected_results.keep_names(job)
    if job.collected_at is None and not collect(job, work):
        return False
    if job.dispatch_mode == DispatchMode.ASYNC_API:
        return dispatch(job, work)
    return push_dispatch.push(job, work)
