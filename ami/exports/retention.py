"""How long the exports of schedules are kept; those that a user asked for stay until they are deleted."""

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from ami.exports.models import DataExport, ScheduledExport
from ami.queues.old_rows import Kept, delete_some

#: Each has a file.
MOST_EXPORTS = 100


def scheduled_exports() -> int:
    """Delete old exports of schedules with their files, but the last one of each."""
    before = timezone.now() - timedelta(days=settings.ANTENNA_EXPORT_DAYS)
    last = ScheduledExport.objects.exclude(last_export=None).values("last_export")
    old = DataExport.objects.filter(scheduled=True, finished_at__lt=before).exclude(pk__in=last)
    return delete_some(old.order_by("pk"), MOST_EXPORTS)


RETENTION = (Kept("exports.DataExport", scheduled_exports, MOST_EXPORTS),)
