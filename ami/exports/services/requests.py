"""Creates exports: for users, as jobs; for due schedules, as tasks of beat."""

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from ami.exports.models import DataExport, ScheduledExport
from ami.exports.services.filters import FilterError, validate_filters
from ami.jobs.services.operations import create_and_enqueue
from ami.main.models import Project, User
from ami.queues.publish import PublishedTask

#: A scheduled export without progress for this time lost its message: the publisher died between commit and publish.
STALLED_AFTER = timedelta(minutes=15)


@transaction.atomic
def request_export(
    project: Project, user: User | None, format_key: str, filters: dict[str, Any] | None = None
) -> tuple[DataExport, PublishedTask]:
    """Create an export and the job that writes it, on behalf of a user.

    Raises:
        FilterError: an invalid filter.
    """
    export = _create(project, user, format_key, filters or {})
    job, published = create_and_enqueue(
        "data_export", project, name=f"Export {export.pk}: {format_key}", params={"export_id": export.pk}
    )
    export.job = job
    export.save(update_fields=["job"])
    return export, published


def due_exports() -> dict[int, int]:
    """Create the exports of all due schedules; return their keys and those of stalled exports, each with its project's.

    Each schedule is moved to its next time by compare-and-set in the transaction that creates its export, so
    concurrent ticks create one export. A schedule whose capture set was deleted is disabled, not retried at each tick.
    """
    now = timezone.now()
    due = ScheduledExport.objects.select_related("project", "user").filter(
        Q(next_run_at=None) | Q(next_run_at__lte=now), enabled=True
    )
    keys = {pk: schedule.project_id for schedule in due if (pk := _run_schedule(schedule))}
    moved_last = Q(advanced_at__lt=now - STALLED_AFTER) | Q(advanced_at=None, created_at__lt=now - STALLED_AFTER)
    stalled = DataExport.objects.filter(moved_last, scheduled=True, finished_at=None)
    return keys | dict(stalled.values_list("pk", "project_id"))


@transaction.atomic
def _run_schedule(schedule: ScheduledExport) -> int | None:
    now = timezone.now()
    same = ScheduledExport.objects.filter(pk=schedule.pk, enabled=True, next_run_at=schedule.next_run_at)
    if not same.update(next_run_at=now + timedelta(hours=schedule.every_hours)):
        return None
    try:
        export = _create(schedule.project, schedule.user, schedule.format, schedule.filters, scheduled=True)
    except FilterError:
        ScheduledExport.objects.filter(pk=schedule.pk).update(enabled=False)
        return None
    ScheduledExport.objects.filter(pk=schedule.pk).update(last_export=export)
    return export.pk


def _create(
    project: Project, user: User | None, format_key: str, filters: dict[str, Any], scheduled: bool = False
) -> DataExport:
    display = validate_filters(project, filters)
    return DataExport.objects.create(
        project=project, user=user, format=format_key, filters=filters, filters_display=display, scheduled=scheduled
    )
