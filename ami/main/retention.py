"""How long sign-ins, sessions, the admin's history and requests to delete are kept."""

from datetime import timedelta

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.utils import timezone

from ami.main.models import BulkDeletion
from ami.main.services import login_attempts, tokens
from ami.queues.old_rows import Kept, delete_oldest, delete_some
from ami.queues.retention import audited_until


def history() -> int:
    """Delete old entries of the admin's history."""
    before = timezone.now() - timedelta(days=settings.ANTENNA_ADMIN_HISTORY_DAYS)
    return delete_oldest(LogEntry.objects.all(), "action_time", before)


def sessions() -> int:
    """Delete sessions that have expired."""
    return delete_some(Session.objects.filter(expire_date__lt=timezone.now()).order_by("expire_date"))


def deletions() -> int:
    """Delete requests to delete rows that were finished long ago."""
    return delete_some(BulkDeletion.objects.filter(finished_at__lt=audited_until()).order_by("pk"))


RETENTION = (
    Kept("admin.LogEntry", history),
    Kept("sessions.Session", sessions),
    Kept("main.LoginAttempts", login_attempts.purge),
    Kept("main.ApiToken", tokens.purge),
    Kept("main.BulkDeletion", deletions),
)
