"""The admin of queues, workers, running tasks and the audit log: lists to look at, and the operations as actions."""

from functools import partialmethod
from operator import attrgetter
from typing import Any

from celery import current_app
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse

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
    page,
    purge,
    scale,
    wish,
)
from ami.queues.admin_site.operation_actions import waiting as queue_waiting
from ami.queues.admin_site.user_messages import selected_rows
from ami.queues.models import AuditEntry, DesiredState, Letter, RefusedRequests, TaskRun, Worker


class LookedAt(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that only the operations write, and they record themselves."""

    records_itself = True

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def _may(self, request: HttpRequest, *, permission: str) -> bool:
        return request.user.has_perm(permission)


#: Django asks a model admin for each permission of its actions by a method of that name.
for _model in (DesiredState, Letter):
    for _name, _ in _model._meta.permissions:
        setattr(LookedAt, f"has_{_name}_permission", partialmethod(LookedAt._may, permission=f"queues.{_name}"))

_queue_name = attrgetter("name")
_node = attrgetter("node")


def _disabled(row: DesiredState) -> str:
    return disabling.name_of(row.kind, row.name)


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
        return page(self, request, "peek", "Oldest messages", shown=shown)

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
    actions = (operation_action("cancel", cancel, attrgetter("task_id"), "cancel_task"),)


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
