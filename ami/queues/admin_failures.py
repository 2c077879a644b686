"""The admin of failures: why tasks failed, each try."""

from operator import attrgetter

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html

from ami.queues.admin_operations import LookedAt
from ami.queues.admin_site.operation_actions import UNTIL, disable, operation_action
from ami.queues.failures import traceback_lines
from ami.queues.models import TaskFailure


@admin.register(TaskFailure)
class TaskFailureAdmin(LookedAt):
    """Why tasks failed, each try; the search for a cause's key shows its failures."""

    list_display = ("failed_at", "task", "kind", "exception", "short_message", "place", "node", "seconds")
    list_filter = ("kind", "task", "exception")
    search_fields = ("task_id", "exception", "message", "place", "cause")
    date_hierarchy = "failed_at"
    show_full_result_count = False
    fields = (
        ("task", "task_id", "retries", "delivery"),
        ("kind", "exception", "place"),
        "message",
        "formatted_traceback",
        ("node", "host", "pid"),
        ("failed_at", "seconds", "peak_kib"),
        "cause_link",
    )
    readonly_fields = ("formatted_traceback", "cause_link")
    actions = (operation_action("disable", disable, attrgetter("task"), "disable_task", (UNTIL,)),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[TaskFailure]:
        rows: QuerySet[TaskFailure] = super().get_queryset(request)
        return (
            rows if request.resolver_match and "object_id" in request.resolver_match.kwargs else rows.defer("traceback")
        )

    @admin.display(description="message")
    def short_message(self, row: TaskFailure) -> str:
        return row.message[:120]

    @admin.display(description="traceback")
    def formatted_traceback(self, row: TaskFailure) -> str:
        """The traceback with the lines of the project's own code set off from those of libraries."""
        return render_to_string("admin/queues/traceback.html", {"lines": traceback_lines(row.traceback)})

    @admin.display(description="same cause")
    def cause_link(self, row: TaskFailure) -> str:
        count = TaskFailure.objects.filter(cause=row.cause).count()
        address = f"{reverse('admin:queues_taskfailure_changelist')}?q={row.cause}"
        return format_html('<a href="{}">{} failures</a>', address, count)
