"""The admin of dead letters: lists, one letter with its trail, and replays; causes are a page of the console."""

from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils.html import format_html

from ami.celery.shown_time import shown_time
from ami.queues.admin_operations import LookedAt
from ami.queues.admin_site.operation_actions import Field, ask, expected, number, operation_action
from ami.queues.admin_site.user_messages import selected_rows
from ami.queues.failures import traceback_lines
from ami.queues.letters import bodies, found, replays, requested_replays, rows
from ami.queues.letters.selection import Selection
from ami.queues.models import Letter, Replay, TaskFailure
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator

TO = Field("to", "To (empty: where each task belongs)", "queue")
RATE = Field("rate", "Letters per second (empty: no limit)", "number")


@admin.register(Letter)
class LetterAdmin(LookedAt):
    """Dead letters. The bodies of their messages are behind a permission of their own."""

    change_list_template = "admin/queues/letters.html"
    list_display = ("collected_at", "task", "task_id", "why", "queue", "state", "died", "arguments")
    list_filter = ("state", "queue", "reason", "task")
    search_fields = ("task_id", "task", "reason", "detail", "cause_text", "exception", "arguments", "cause")
    date_hierarchy = "collected_at"
    show_full_result_count = False
    fields = (
        ("task", "task_id", "retries"),
        ("queue", "state", "died"),
        ("reason", "detail"),
        ("exception", "place", "cause_link"),
        ("arguments", "body_bytes", "job"),
        ("first_collected_at", "collected_at", "replayed_at"),
        "what_to_do",
        "trail",
        "formatted_traceback",
        "tries",
    )
    readonly_fields = ("trail", "formatted_traceback", "tries", "cause_link", "what_to_do")
    actions = ("replay", "discard")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Letter]:
        return found.with_messages(super().get_queryset(request).defer(*found.HEAVY))

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [path("<int:key>/body/", view(self.body), name="queues_letter_body"), *super().get_urls()]

    @admin.action(description="Replay the selected", permissions=["replay_letter"])
    def replay(self, request: HttpRequest, queryset: QuerySet[Letter]) -> HttpResponse | None:
        """Publish letters again: a few at once, more in the background, where Replays shows how far it is."""
        if "confirmed" not in request.POST:
            return ask(self, request, "replay", selected_rows(request, queryset), (TO, RATE))
        self._begin(
            request, Selection(ids=tuple(queryset.values_list("pk", flat=True)[: requested_replays.MOST_SELECTED + 1]))
        )
        return None

    @admin.action(description="Discard the selected", permissions=["discard_letter"])
    def discard(self, request: HttpRequest, queryset: QuerySet[Letter]) -> HttpResponse | None:
        """Give letters up; their rows stay for a while."""
        if "confirmed" not in request.POST:
            return ask(self, request, "discard", selected_rows(request, queryset), ())
        selection = Selection(ids=tuple(queryset.values_list("pk", flat=True)))
        try:
            count = rows.discard_recorded(selection, _operator(request), why=request.POST.get("why", ""))
        except Refused as error:
            messages.error(request, str(error))
        else:
            messages.success(request, f"Discarded: {count} letters.")
        return None

    def body(self, request: HttpRequest, key: int) -> HttpResponse:
        """Send the message as it was published, secrets included, as text."""
        if not request.user.has_perm("queues.read_letter_body"):
            raise PermissionDenied
        row = get_object_or_404(Letter, pk=key)
        try:
            body = bodies.looked_at(row, _operator(request))
        except Refused as error:
            raise Http404(str(error)) from error
        response = HttpResponse(body, content_type="text/plain; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="letter-{key}.txt"'
        response["X-Content-Type-Options"] = "nosniff"
        return response

    @admin.display(description="why")
    def why(self, row: Letter) -> str:
        return found.why(row)

    @admin.display(description="what became of it")
    def trail(self, row: Letter) -> str:
        trail = [{**event, "at": shown_time(event["at"])} for event in found.trail(row)]
        return render_to_string("admin/queues/letter_trail.html", {"trail": trail})

    @admin.display(description="traceback")
    def formatted_traceback(self, row: Letter) -> str:
        """The traceback of the last failure; where none is on record, the broker's reason and that it is missing."""
        failure = TaskFailure.objects.filter(task_id=row.task_id).order_by("failed_at", "pk").last()
        if failure is None:
            return f"No failure of it is on record; the broker says: {row.reason}."
        return render_to_string("admin/queues/traceback.html", {"lines": traceback_lines(failure.traceback)})

    @admin.display(description="tries that failed")
    def tries(self, row: Letter) -> str:
        """What was recorded of its tries, replays included, as a link."""
        count = TaskFailure.objects.filter(task_id=row.task_id).count()
        return _link("taskfailure", row.task_id, f"{count} on record")

    @admin.display(description="same cause")
    def cause_link(self, row: Letter) -> str:
        return _link("letter", row.cause, f"{Letter.objects.filter(cause=row.cause).count()} letters")

    @admin.display(description="do")
    def what_to_do(self, row: Letter) -> str:
        pages = (
            ("console:letter_edit", "replay with other arguments"),
            ("admin:queues_letter_body", "read its message"),
        )
        links = [(reverse(page, args=[row.pk]), text) for page, text in pages]
        return render_to_string("admin/queues/links.html", {"links": links})

    def _begin(self, request: HttpRequest, selection: Selection) -> None:
        """Begin a replay, publish it if it is small, and say what happens."""
        given = {"why": request.POST.get("why", ""), "to": request.POST.get("to", "")}
        rate = request.POST.get("rate", "").strip()
        try:
            sentence = requested_replays.replay(
                settings.ANTENNA_TOPOLOGY, selection, _operator(request), rate=number(rate) if rate else None, **given
            )
        except expected() as error:
            messages.error(request, str(error))
        else:
            messages.success(request, sentence)


def _link(model: str, search: str, text: str) -> str:
    return format_html('<a href="{}?q={}">{}</a>', reverse(f"admin:queues_{model}_changelist"), search, text)


def _operator(request: HttpRequest) -> Operator:
    return Operator(request.user, "admin")


def _replay_key(row: Replay) -> str:
    return str(row.pk)


def _key(text: str) -> int:
    return int(text[:18]) if text.isascii() and text.isdecimal() else 0


def stop_replay(key: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    stopped = replays.stop(_key(key), operator, why=why)
    return f"{stopped.done} of {stopped.total} letters were replayed."


def resume_replay(key: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    replays.in_background(replays.resume(_key(key), operator, why=why))
    return "It goes on within seconds."


@admin.register(Replay)
class ReplayAdmin(LookedAt):
    """Replays of many letters, with how far they are."""

    list_display = ("began_at", "state", "done", "total", "which", "rate", "destination", "by", "why", "error")
    list_filter = ("state",)
    ordering = ("-pk",)
    actions = (
        operation_action("stop", stop_replay, _replay_key, "replay_letter"),
        operation_action("resume", resume_replay, _replay_key, "replay_letter"),
    )

    @admin.display(description="letters")
    def which(self, row: Replay) -> str:
        return str(Selection.of(row.selection))
