"""Publishes accepted but unhandled results again, and purges old ones."""

from datetime import datetime, timedelta

from django.utils import timezone

from ami.jobs.models import StoredResult
from ami.jobs.services import result_batches, stored_results

WAIT_SECONDS = 300
LONGEST_DOUBLINGS = 6
BATCH = 5000
AT_ONCE = 500


def audit_stored_results() -> dict[str, int]:
    """Publish results again that are unhandled after 5 minutes, then 10, 20, ...; purge handled ones.

    The doubling keeps a deep ingest queue from filling with duplicates. A result whose task was buried is not
    published again: its message is in the dead-letter queue.

    Raises:
        kombu.exceptions.OperationalError: the broker is unreachable; the next audit continues.
    """
    now = timezone.now()
    old = now - timedelta(seconds=WAIT_SECONDS)
    waiting = (
        StoredResult.objects.filter(handled_at=None, error="", created_at__lt=old).order_by("created_at").defer("body")
    )
    due = [row for row in waiting[:BATCH] if _is_due(row, now)][:AT_ONCE]
    result_batches.publish(due)
    return {"published_again": len(due), "purged": stored_results.purge()}


def _is_due(row: StoredResult, now: datetime) -> bool:
    wait = timedelta(seconds=max(WAIT_SECONDS, WAIT_SECONDS * 2 ** min(row.publishes, LONGEST_DOUBLINGS) / 2))
    return row.published_at is None or row.published_at < now - wait
