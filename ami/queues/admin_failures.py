"""The admin of failures and dead letters: why tasks failed, and what is to become of those that were given up."""

from celery import current_app
from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html

from ami.queues import audit_log, dead_letters
from ami.queues.admin_operations import LookedAt
from ami.queues.admin_site.operation_actions import operation_action
from ami.queues.failures import traceback_lines
from ami.queues.letters import rows
from ami.queues.models import Letter, TaskFailure
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator


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


def _key(row: Letter) -> str:
    return str(row.pk)


def _replay(key: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    letters, topology = Letter.objects.filter(pk=key), settings.ANTENNA_TOPOLOGY
    with current_app.connection_for_write() as connection:
        done = rows.replay(connection, letters, lambda message: dead_letters.destination(topology, message))
    return _done("replay", key, done, operator, why)


def _discard(key: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    return _done("discard", key, rows.discard(Letter.objects.filter(pk=key)), operator, why)


def _done(verb: str, key: str, done: int, operator: Operator, why: str) -> str:
    if not done:
        raise Refused("It is not dead any more; nothing was done.")
    row = Letter.objects.only("task", "task_id", "queue").get(pk=key)
    which = f"letter {key} of {row.queue}, {row.task} {row.task_id}"
    audit_log.record(verb, who=operator.who, which=which, why=why, source=operator.source)
    return row.task


@admin.register(Letter)
class LetterAdmin(LookedAt):
    """Dead letters; the bodies of their messages are not shown."""

    list_display = ("collected_at", "task", "task_id", "queue", "state", "reason", "died", "arguments")
    list_filter = ("state", "queue", "reason", "task")
    search_fields = ("task_id", "task", "reason", "detail", "arguments")
    date_hierarchy = "collected_at"
    show_full_result_count = False
    fields = (
        ("task", "task_id", "retries"),
        ("queue", "state", "died"),
        ("reason", "detail"),
        "arguments",
        "causes",
        ("collected_at", "replayed_at"),
    )
    readonly_fields = ("causes",)
    actions = (
        operation_action("replay", _replay, _key, "replay_letter"),
        operation_action("discard", _discard, _key, "discard_letter"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Letter]:
        found: QuerySet[Letter] = super().get_queryset(request).defer("body", "headers", "properties", "deaths")
        return found

    def has_replay_letter_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.replay_letter")

    def has_discard_letter_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.discard_letter")

    @admin.display(description="tries that failed")
    def causes(self, row: Letter) -> str:
        """What was recorded of its tries, replays included, as a link."""
        count = TaskFailure.objects.filter(task_id=row.task_id).count()
        address = f"{reverse('admin:queues_taskfailure_changelist')}?q={row.task_id}"
        return format_html('<a href="{}">{} on record</a>', address, count)
