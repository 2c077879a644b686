"""The page of one dead letter: why it died, its trail, and its replay, with other arguments too."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from ami.console import forms_of_levers as levers
from ami.console import letters, list_page
from ami.console.task_jobs import job_named
from ami.queues import failures
from ami.queues.letters import bodies, editing, found, requested_replays
from ami.queues.letters.selection import Selection
from ami.queues.models import Letter, TaskFailure
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator

TRIES_SHOWN = 20


@require_http_methods(["GET", "POST"])
def show(request: HttpRequest, key: int) -> HttpResponse:
    """Show a letter; no secret of its message."""
    list_page.require(request, "queues.view_letter")
    row = _letter(key)
    if request.method == "POST":
        return letters.posted(request, Selection(ids=(key,)))
    tries = list(TaskFailure.objects.filter(task_id=row.task_id).order_by("-failed_at", "-pk")[:TRIES_SHOWN])
    context = {
        "row": row,
        "why": found.why(row, found.LONGEST_MESSAGE),
        "trail": found.trail(row),
        "tries": [(each, failures.traceback_lines(each.traceback)) for each in tries],
        "same_cause": Letter.objects.filter(cause=row.cause).count(),
        "job": job_named(request, row.arguments, row.job),
        "levers": levers.allowed(request, letters.LEVERS) if row.state == Letter.State.DEAD else [],
        "queues": letters.work_queues(),
        "may_edit": row.state == Letter.State.DEAD and _may_edit(request),
        "may_read": request.user.has_perm("queues.read_letter_body"),
    }
    return list_page.page(request, "letter", f"Letter {row.pk}", "letters", context)


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, key: int) -> HttpResponse:
    """Replay a letter with other arguments; showing them needs the permission to read its message, and is audited."""
    list_page.require(request, "queues.edit_letter", "queues.read_letter_body", "queues.replay_letter")
    row = _letter(key)
    operator = Operator(request.user, "admin")
    given = {name: request.POST.get(name, "") for name in ("args", "kwargs", "why")}
    try:
        if request.method == "POST":
            editing.edit(key, given["args"], given["kwargs"], operator, why=given["why"])
            levers.run(request, "replay", lambda: _replay(key, operator, given["why"]))
            return levers.see_other(reverse("console:letter", args=[key]))
        bodies.record_look(row, operator)
        given["args"], given["kwargs"] = map(editing.written, editing.arguments(row))
    except Refused as error:
        messages.error(request, str(error))
    return list_page.page(
        request, "letter_edit", f"Letter {key} with other arguments", "letters", {"row": row, "given": given}
    )


def _replay(key: int, operator: Operator, why: str) -> str:
    return requested_replays.replay(settings.ANTENNA_TOPOLOGY, Selection(ids=(key,)), operator, why=why)


def _may_edit(request: HttpRequest) -> bool:
    return request.user.has_perms(("queues.edit_letter", "queues.read_letter_body", "queues.replay_letter"))


def _letter(key: int) -> Any:
    rows = found.with_messages(Letter.objects.defer(*found.HEAVY))
    row = rows.filter(pk=key).first() if key < 2**63 else None
    if row is None:
        raise Http404(f"no letter {key}")
    return row
