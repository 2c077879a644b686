"""How long the lines of jobs and posted results are kept."""

from datetime import timedelta

from django.conf import settings
from django.db.models import Count, Exists, OuterRef
from django.utils import timezone

from ami.admission.calls import has_call
from ami.jobs.models import JobLog, StoredResult
from ami.jobs.models.states import FINAL
from ami.jobs.services import stored_results
from ami.queues.models import Letter, TaskFailure
from ami.queues.old_rows import ROWS, Kept, delete_some

#: The newest lines of a job, which are kept.
MOST_LINES = 10_000


def log_lines() -> int:
    """Delete old lines of jobs that are over, and of every job the oldest beyond `MOST_LINES`."""
    before = timezone.now() - timedelta(days=settings.ANTENNA_JOB_LOG_DAYS)
    old = JobLog.objects.filter(created_at__lt=before, job__status__in=FINAL).order_by("created_at")
    if (deleted := delete_some(old)) == ROWS:
        return deleted
    counted = JobLog.objects.order_by().values_list("job").annotate(lines=Count("pk")).filter(lines__gt=MOST_LINES)
    for job, lines in counted[:ROWS]:
        oldest = JobLog.objects.filter(job=job).order_by("created_at", "pk")
        deleted += delete_some(oldest, min(lines - MOST_LINES, ROWS - deleted))
    return deleted


def results() -> int:
    """Delete results that were handled a day ago, and buried ones whose dead letter is gone.

    One that is neither handled nor buried is still to come. A letter that is not collected, or not yet, is no row.
    """
    handled = stored_results.purge()
    if not settings.ANTENNA_COLLECT_LETTERS:
        return handled
    before = timezone.now() - timedelta(days=settings.ANTENNA_LETTER_DAYS)
    buried = StoredResult.objects.filter(handled_at=None, created_at__lt=before).exclude(error="")
    has_letter = Exists(Letter.objects.filter(task_id=OuterRef("batch_id")))
    died = Exists(TaskFailure.objects.filter(task_id=OuterRef("batch_id"), failed_at__gte=before))
    gone = buried.exclude(has_letter | died | has_call("batch_id")).order_by("created_at")
    return handled + stored_results.delete(gone, ROWS - handled)


RETENTION = (Kept("jobs.JobLog", log_lines), Kept("jobs.StoredResult", results))
