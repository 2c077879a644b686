"""Results that were accepted: each is handled, however often something in between was lost."""

from datetime import timedelta

from django.utils import timezone

from ami.jobs.models import StoredResult
from ami.jobs.services import stored_results

WAIT_SECONDS = 300
LONGEST_DOUBLINGS = 6
BATCH = 5000
AT_ONCE = 500


def audit_stored_results() -> dict[str, int]:
    """Publish again what waits unhandled for five minutes, then ten, twenty...; purge what is done.

    The doubling keeps a deep ingest queue from being filled with copies of itself. A result whose task was buried is
    left to the dead-letter queue.

    Raises:
        kombu.exceptions.OperationalError: the broker is away; the next audit goes on.
    """
    now = timezone.now()
    old = now - timedelta(seconds=WAIT_SECONDS)
    waiting = StoredResult.objects.filter(handled_at=None, error="", created_at__lt=old).order_by("created_at")
    published = 0
    for row in waiting[:BATCH]:
        wait = timedelta(seconds=WAIT_SECONDS * 2 ** min(row.publishes, LONGEST_DOUBLINGS) / 2)
        if published < AT_ONCE and (row.published_at is None or row.published_at < now - max(wait, now - old)):
            stored_results.publish(row)
            published += 1
    return {"published_again": published, "purged": stored_results.purge()}
