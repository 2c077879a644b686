"""The admin of the schedule, whose "run selected tasks" publishes for a user, and of Celery's results."""

from celery import current_app
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django_celery_beat.admin import ClockedScheduleAdmin as BeatClockedScheduleAdmin
from django_celery_beat.admin import CrontabScheduleAdmin as BeatCrontabScheduleAdmin
from django_celery_beat.admin import PeriodicTaskAdmin as BeatPeriodicTaskAdmin
from django_celery_beat.admin import SolarScheduleAdmin as BeatSolarScheduleAdmin
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, PeriodicTask, SolarSchedule
from django_celery_results.admin import GroupResultAdmin as ResultsGroupResultAdmin
from django_celery_results.admin import TaskResultAdmin as ResultsTaskResultAdmin
from django_celery_results.backends import DatabaseBackend
from django_celery_results.models import GroupResult, TaskResult

from ami.queues import admin_failures, admin_letters, admin_operations, schedule_operations  # noqa: F401 - they register their admins
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.refusals import Refused
from ami.queues.schedule_forms import CrontabForm, PeriodicTaskForm

admin.site.unregister([PeriodicTask, CrontabSchedule, ClockedSchedule, SolarSchedule, TaskResult, GroupResult])


class UnlistedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages that no index leads to: they are reached from a form, or by their address."""

    def has_module_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False


class StoredResultsAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Results in the database: listed only where there are some, since most tasks' results are ignored."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the index leads to them; one statement where results are kept in the database, otherwise none."""
        kept = isinstance(current_app.backend, DatabaseBackend) and super().has_module_permission(request)
        return kept and self.model.objects.exists()


@admin.register(SolarSchedule)
class SolarScheduleAdmin(UnlistedAdmin, BeatSolarScheduleAdmin):
    """Sunset and the like; an entry's form adds one."""


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(UnlistedAdmin, BeatClockedScheduleAdmin):
    """Single moments; an entry's form adds one."""


@admin.register(GroupResult)
class GroupResultAdmin(StoredResultsAdmin, ResultsGroupResultAdmin):
    """django-celery-results' admin of groups."""


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(BeatCrontabScheduleAdmin):
    """django-celery-beat's admin, which would save what Celery cannot read; every later page with it would fail."""

    form = CrontabForm


@admin.register(TaskResult)
class TaskResultAdmin(StoredResultsAdmin, ResultsTaskResultAdmin):
    """django-celery-results' admin; its form has no field to write, so that every new row was the same empty one."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(BeatPeriodicTaskAdmin):
    """django-celery-beat's admin, with its "run selected tasks" replaced: that one publishes a click like a tick.

    Its other actions require no permission, so that a read-only user could switch the schedule off; here they do.
    """

    form = PeriodicTaskForm
    change_form_template = "admin/queues/periodic_task.html"
    actions = ("enable_tasks", "disable_tasks", "toggle_tasks", "run_tasks")
    enable_tasks = admin.action(permissions=["change"])(BeatPeriodicTaskAdmin.enable_tasks)
    disable_tasks = admin.action(permissions=["change"])(BeatPeriodicTaskAdmin.disable_tasks)
    toggle_tasks = admin.action(permissions=["change"])(BeatPeriodicTaskAdmin.toggle_tasks)

    @admin.action(description="Run selected tasks now", permissions=["change"])
    def run_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        """Publish each selected entry's task on behalf of the user."""
        for entry in selected_rows(request, queryset):
            try:
                published = schedule_operations.publish(entry)
            except Refused as error:
                messages.error(request, str(error))
                continue
            report_published(request, entry.task, published)
