"""The pages of dead letters: groups by cause, one cause, all of them, and replays with how far they are."""

from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from ami.console import forms_of_levers as levers
from ami.console import letter_figures, list_page
from ami.console.letter_figures import LetterFilter
from ami.console.levers import Lever, add
from ami.console.page import LIVE
from ami.queues import dead_letters
from ami.queues.admin_letters import RATE, TO, resume_replay, stop_replay
from ami.queues.admin_site.operation_actions import number
from ami.queues.letters import found, replays, requested_replays, rows
from ami.queues.letters.selection import Selection
from ami.queues.models import Letter, Replay
from ami.queues.wishes import Operator

GROUP_COLUMNS = ("cause", "task", "exception", "message", "place", "letters", "came_back", "first_at", "last_at")
REPLAY_COLUMNS = ("id", "state", "done", "total", "selection", "rate", "destination", "by", "why", "error", "began_at")
REPLAYS_SHOWN = 50


@require_GET
def groups(request: HttpRequest) -> HttpResponse:
    """Show dead letters by cause, each with its last day."""
    list_page.require(request, "queues.view_letter")
    wanted = LetterFilter.of(request.GET)
    letters = wanted.rows()
    if data := list_page.as_data(
        request,
        "causes",
        GROUP_COLUMNS,
        lambda: (found.group_as_dict(group) for group in found.groups(letters, list_page.MOST_ROWS)),
    ):
        return data
    context = {
        "groups": letter_figures.groups(letters),
        "bars": letter_figures.over_time(letters),
        "most_groups": letter_figures.GROUPS,
        "running": _running(request),
    }
    return list_page.page(request, "letters", "Dead letters by cause", "letters", context | _filters(wanted))


@require_http_methods(["GET", "POST"])
def all_letters(request: HttpRequest) -> HttpResponse:
    """List letters one by one; those that are ticked are replayed or discarded."""
    list_page.require(request, "queues.view_letter")
    if request.method == "POST":
        keys = tuple(int(key) for key in request.POST.getlist("ids") if key.isascii() and key.isdecimal())
        return posted(request, Selection(ids=keys))
    wanted = LetterFilter.of(request.GET)
    if data := _letters_as_data(request, wanted):
        return data
    context = {"rows": list_page.one_page(request, wanted.rows()), "queues": work_queues(), **_may(request)}
    return list_page.page(request, "letter_list", "Dead letters", "letters", context | _filters(wanted))


@require_http_methods(["GET", "POST"])
def one_group(request: HttpRequest, cause: str) -> HttpResponse:
    """Show the letters of one cause, and replay or discard all that are dead."""
    list_page.require(request, "queues.view_letter")
    if request.method == "POST":
        return posted(request, Selection(cause=cause))
    wanted = LetterFilter.of(request.GET, cause)
    if data := _letters_as_data(request, wanted):
        return data
    page = list_page.one_page(request, wanted.rows())
    newest = page.object_list[0] if len(page.object_list) else Letter.objects.filter(cause=cause).last()
    if newest is None:
        raise Http404(f"no letter has the cause {cause[:40]}")
    context = {
        "rows": page,
        "newest": newest,
        "bars": letter_figures.over_time(wanted.rows()),
        "levers": levers.allowed(request, LEVERS),
        "queues": work_queues(),
        "running": _running(request),
    }
    return list_page.page(request, "letter_group", "Letters with one cause", "letters", context | _filters(wanted))


@require_GET
def replay_list(request: HttpRequest) -> HttpResponse:
    """List replays with how far each is; stop or resume one."""
    list_page.require(request, "queues.view_replay")
    listed = Replay.objects.order_by("-pk")
    if data := list_page.as_data(
        request, "replays", REPLAY_COLUMNS, lambda: map(replays.as_dict, listed[: list_page.MOST_ROWS])
    ):
        return data
    shown = [(replay, str(Selection.of(replay.selection))) for replay in listed[:REPLAYS_SHOWN]]
    if LIVE in request.GET:
        return list_page.part(request, "replays_table", {"replays": shown})
    return list_page.page(request, "replays", "Replays", "letters", {"replays": shown})


def posted(request: HttpRequest, selection: Selection) -> HttpResponse:
    """Replay or discard what is selected; the operations ignore letters that are not dead any more."""

    def replay(_: str, operator: Operator, why: str, given: dict[str, str]) -> str:
        rate = number(given["rate"]) if given["rate"] else None
        return requested_replays.replay(
            settings.ANTENNA_TOPOLOGY, selection, operator, why=why, to=given["to"], rate=rate
        )

    def discard(_: str, operator: Operator, why: str, __: dict[str, str]) -> str:
        return f"{rows.discard_recorded(selection, operator, why=why)} letters."

    return levers.pull(request, _levers(replay, discard), str(selection), request.get_full_path())


def _levers(replay: Any, discard: Any) -> tuple[Lever, ...]:
    return (
        Lever(
            "replay",
            "replay_letter",
            replay,
            "Publishes the dead letters again. Fix the cause first: a task that fails again is buried again.",
            (TO, RATE),
        ),
        Lever(
            "discard",
            "discard_letter",
            discard,
            "Gives the dead letters up: they are not run. Their rows stay for a while.",
            grave=True,
        ),
    )


#: What the page shows; `posted` binds them to a selection.
LEVERS = _levers(None, None)


add(
    Lever(
        "stop-replay",
        "replay_letter",
        stop_replay,
        "Replay {target} ends within a batch of letters. Resume goes on from there.",
        label="Stop replay",
    ),
    Lever(
        "resume-replay",
        "replay_letter",
        resume_replay,
        "Replay {target} goes on where it stopped.",
        label="Resume replay",
    ),
)


def _letters_as_data(request: HttpRequest, wanted: LetterFilter) -> HttpResponse | None:
    listed = wanted.rows()[: list_page.MOST_ROWS]
    return list_page.as_data(request, "letters", found.SHOWN, lambda: map(found.as_dict, listed))


def _running(request: HttpRequest) -> list[Replay]:
    if not request.user.has_perm("queues.view_replay"):
        return []
    return list(Replay.objects.filter(state=Replay.State.RUNNING).order_by("-pk")[:5])


def _may(request: HttpRequest) -> dict[str, bool]:
    return {
        "may_replay": request.user.has_perm("queues.replay_letter"),
        "may_discard": request.user.has_perm("queues.discard_letter"),
    }


def _filters(wanted: LetterFilter) -> dict[str, Any]:
    return {
        "wanted": wanted,
        "states": (*letter_figures.STATES, letter_figures.ANY),
        "tasks": letter_figures.tasks(),
        "burial_queues": dead_letters.burial_queues(settings.ANTENNA_TOPOLOGY),
    }


def work_queues() -> list[str]:
    return [row.queue for row in settings.ANTENNA_TOPOLOGY.workloads]
