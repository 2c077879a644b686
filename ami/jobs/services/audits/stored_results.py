"""Publishes accepted but unhandled results again whose call is gone."""

from datetime import datetime, timedelta

from django.utils import timezone

from ami.admission.calls import has_call
from ami.jobs.models import StoredResult
from ami.jobs.services import result_batches

WAIT_SECONDS = 300
LONGEST_DOUBLINGS = 6
BATCH = 5000
AT_ONCE = 500


def audit_stored_results() -> dict[str, int]:
    """Publish results again that are unhandled after 5 minutes, then 10, 20, ...

    A result is stored together with its call: only one whose call was purged or released by hand has none. A result
    whose task was buried is not published again: its letter is there.
    """
    now = timezone.now()
    old = now - timedelta(seconds=WAIT_SECONDS)
    waiting = (
        StoredResult.objects.filter(~has_call("batch_id"), handled_at=None, error="", created_at__lt=old)
        .order_by("created_at")
        .select_related("job")
        .defer("body")
    )
    due = [row for row in waiting[:BATCH] if _is_due(row, now)][:AT_ONCE]
    result_batches.publish(due)
    return {"published_again": len(due)}


def _is_due(row: StoredResult, now: datetime) -> bool:
    wait = timedelta(seconds=max(WAIT_SECONDS, WAIT_SECONDS * 2 ** min(row.publishes, LONGEST_DOUBLINGS) / 2))
    return row.published_at is None or row.published_at < now - wait
