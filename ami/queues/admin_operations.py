"""The admin of queues, workers, running tasks and the audit log: lists to look at, and the operations as actions."""

from typing import Any

from celery import current_app
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from ami.queues import disabling, overview, pauses, worker_operations
from ami.queues import messages as queue_messages
from ami.queues.admin_site.operation_actions import (
    COUNT,
    MOST_MOVED,
    NO_WAIT,
    PROCESSES,
    UNTIL,
    Field,
    cancel,
    enable,
    expected,
    last_worker,
    move,
    operation_action,
    purge,
    scale,
    wish,
)
from ami.queues.admin_site.operation_actions import waiting as queue_waiting
from ami.queues.admin_site.user_messages import selected_rows
from ami.queues.models import AuditEntry, DesiredState, RefusedRequests, TaskRun, Worker


class LookedAt(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that only the operations write, and they record themselves."""

    records_itself = True

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_pause_queue_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.pause_queue")

    def has_control_workers_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.control_workers")

    def has_purge_queue_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.purge_queue")

    def has_peek_queue_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.peek_queue")

    def has_move_messages_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.move_messages")

    def has_disable_task_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.disable_task")

    def has_replay_letter_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.replay_letter")

    def has_discard_letter_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.discard_letter")

    def has_cancel_task_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("queues.cancel_task")


def _queue_name(row: DesiredState) -> str:
    return row.name


def _task_id(row: TaskRun) -> str:
    return row.task_id


def _disabled(row: DesiredState) -> str:
    return disabling.name_of(row.kind, row.name)


def _node(row: Worker) -> str:
    return row.node


@admin.register(DesiredState)
class DesiredStateAdmin(LookedAt):
    """What operators want; the queues are always listed, so that one can be paused here."""

    list_display = ("kind", "name", "aspect", "value", "by", "why", "since", "until")
    list_filter = ("kind", "aspect", "value")
    search_fields = ("name", "by", "why")
    ordering = ("kind", "name", "aspect")
    actions = (
        operation_action("pause", wish(pauses.pause, **NO_WAIT), _queue_name, "pause_queue", (UNTIL,)),
        operation_action("resume", wish(pauses.resume, **NO_WAIT), _queue_name, "pause_queue"),
        operation_action("enable", enable, _disabled, "disable_task"),
        "peek",
        operation_action("purge", purge, _queue_name, "purge_queue", (COUNT,), queue_waiting),
        operation_action(
            "move",
            move,
            _queue_name,
            "move_messages",
            (
                Field("to", "To", "queue", is_required=True),
                Field("task", "Only of this task"),
                Field("limit", f"At most (up to {MOST_MOVED})", "number"),
            ),
        ),
    )

    @admin.action(description="Peek into the selected", permissions=["peek_queue"])
    def peek(self, request: HttpRequest, queryset: QuerySet[DesiredState]) -> HttpResponse:
        """Show the oldest messages of queues; on RabbitMQ's work queues this costs one delivery of each."""
        shown = []
        for row in selected_rows(request, queryset):
            try:
                with current_app.connection_for_read() as connection:
                    shown.append((row.name, queue_messages.peek(settings.ANTENNA_TOPOLOGY, connection, row.name)))
            except expected() as error:
                messages.error(request, f"{row.name}: {error}")
        context = {
            **self.admin_site.each_context(request),
            "title": "Oldest messages",
            "shown": shown,
            "opts": self.model._meta,
        }
        return TemplateResponse(request, "admin/queues/peek.html", context)

    def get_queryset(self, request: HttpRequest) -> QuerySet[DesiredState]:
        """Return every wish; a queue that nobody ever paused gets a row that says so."""
        known = set(DesiredState.objects.filter(kind=DesiredState.Kind.QUEUE).values_list("name", flat=True))
        for row in settings.ANTENNA_TOPOLOGY.workloads:
            if row.queue not in known:
                values = {"value": 0, "by": "nobody", "since": Now()}
                DesiredState.objects.get_or_create(
                    kind=DesiredState.Kind.QUEUE, name=row.queue, aspect=pauses.PAUSED, defaults=values
                )
        found: QuerySet[DesiredState] = super().get_queryset(request)
        return found


@admin.register(Worker)
class WorkerAdmin(LookedAt):
    """The workers as they last reported themselves."""

    list_display = ("node", "state", "service", "host", "queues", "closed_queues", "concurrency", "runs", "seen_at")
    list_filter = ("service", "host", "verdict")
    search_fields = ("node", "host")
    actions = (
        operation_action(
            "park", wish(worker_operations.park, **NO_WAIT), _node, "control_workers", (UNTIL,), last_worker
        ),
        operation_action("unpark", wish(worker_operations.unpark, **NO_WAIT), _node, "control_workers"),
        operation_action("stop", wish(worker_operations.stop, **NO_WAIT), _node, "control_workers", (UNTIL,)),
        operation_action("scale", scale, _node, "control_workers", (PROCESSES,)),
        operation_action("restart", wish(worker_operations.restart), _node, "control_workers"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        found: QuerySet[Worker] = super().get_queryset(request).annotate(now=Now())
        return found

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        return overview.worker_row(row, row.now).state

    @admin.display(description="running")
    def runs(self, row: Worker) -> int:
        return len(row.running)


@admin.register(TaskRun)
class TaskRunAdmin(LookedAt):
    """The tasks that run, or ran, for a while."""

    list_display = ("task", "task_id", "node", "started_at", "attempts", "progress", "kib", "ended_at", "outcome")
    list_filter = ("task", "node", "is_redelivered")
    search_fields = ("task_id", "task")
    actions = (operation_action("cancel", cancel, _task_id, "cancel_task"),)


@admin.register(AuditEntry)
class AuditEntryAdmin(LookedAt):
    """What operators did."""

    list_display = ("at", "who", "verb", "target", "why", "source", "outcome")
    list_filter = ("source", "verb")
    search_fields = ("who", "verb", "target", "why")
    date_hierarchy = "at"
    list_select_related = ("user",)


@admin.register(RefusedRequests)
class RefusedRequestsAdmin(LookedAt):
    """What the API refused, by user, status and hour."""

    list_display = ("hour", "user", "status", "requests", "last")
    list_filter = ("status",)
    search_fields = ("last",)
    date_hierarchy = "hour"
    list_select_related = ("user",)
