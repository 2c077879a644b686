"""The page of one task by its id: where it is, why it failed, its letters and its job, and how to cancel it."""

from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from ami.console import list_page
from ami.console.task_jobs import job_named
from ami.queues import cancellations, failures, task_state
from ami.queues.letters import found
from ami.queues.models import Letter, TaskFailure, TaskRun
from ami.queues.task_state import NO_TRACE, TaskState

SHOWN = 20


@require_GET
def show(request: HttpRequest, task_id: str) -> HttpResponse:
    """Show what is on record; ``?ask=workers`` also asks the workers, which takes a second."""
    list_page.require(request, "queues.view_taskrun")
    if len(task_id) > cancellations.LONGEST_ID or not task_id.isprintable():
        raise BadRequest("This is not a task's id.")
    is_asked = request.GET.get("ask") == "workers"
    state = task_state.of(task_id) if is_asked else task_state.on_record(task_id) or TaskState(task_id, NO_TRACE)
    has_trace = state.state != NO_TRACE
    letters = _letters(request, task_id) if has_trace else []
    tries = _failures(request, task_id) if has_trace else []
    context = {
        "state": state,
        "run": TaskRun.objects.filter(task_id=task_id).first(),
        "is_unknown": not has_trace,
        "is_asked": is_asked,
        "task": state.task or (tries[0][0].task if tries else ""),
        "queue": settings.ANTENNA_TOPOLOGY.place(state.task).queue if state.task else "",
        "letters": letters,
        "tries": tries,
        "job": job_named(
            request, " ".join(row.arguments for row in letters), letters[0].job if letters else "", task_id
        ),
    }
    data = {"task_id": task_id, "state": state.state, "detail": state.detail, "task": state.task}
    if answer := list_page.as_data(request, "task", tuple(data), lambda: [data]):
        return answer
    return list_page.page(request, "task", f"Task {task_id}", "workers", context)


def _letters(request: HttpRequest, task_id: str) -> list[Letter]:
    if not request.user.has_perm("queues.view_letter"):
        return []
    return list(Letter.objects.defer(*found.HEAVY).filter(task_id=task_id).order_by("-pk")[:SHOWN])


def _failures(request: HttpRequest, task_id: str) -> list[tuple[Any, list[tuple[str, bool]]]]:
    if not request.user.has_perm("queues.view_taskfailure"):
        return []
    rows = TaskFailure.objects.filter(task_id=task_id).order_by("-failed_at", "-pk")[:SHOWN]
    return [(row, failures.traceback_lines(row.traceback)) for row in rows]
