"""The wait of a pushed job's first batch for a service that starts, over several slices if it must."""

from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import UNSETTLED
from ami.jobs.services.job_kinds import SliceOfWork
from ami.ml.cold_start import COLD_START_SECONDS


class SliceOver(Exception):
    """The slice ends while the service starts; the next slice goes on waiting."""


class ColdWait:
    """Time for a service to start, once per job; ``is_first`` until a batch is answered or has failed."""

    def __init__(self, job: Job, work: SliceOfWork) -> None:
        self._job = job
        self._work = work
        self.is_first = not JobImage.objects.filter(job=job).exclude(state__in=UNSETTLED).exists()

    def seconds_left(self) -> float:
        """Return what is left of `COLD_START_SECONDS`, which begin with the first call; 0 after the first batch."""
        if not self.is_first:
            return 0.0
        now = timezone.now().timestamp()
        until = self._job.cursor.get("cold_until")
        if until is None:
            until = now + COLD_START_SECONDS
            self._job.save_progress(cursor={**self._job.cursor, "cold_until": until})
        return max(0.0, float(until) - now)

    def pause(self) -> None:
        """Renew the job's lease before a further attempt.

        Raises:
            JobStopped: the job is cancelled.
            SliceOver: the slice is used up while the first batch waits.
        """
        self._job.save_progress()
        if self.is_first and self._work.over():
            raise SliceOver
