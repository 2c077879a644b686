"""The page of one task by its id: where it is, why it failed, its letters and its job, and how to cancel it."""

import shlex
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from ami.console import list_page
from ami.console.task_jobs import job_named
from ami.queues import cancellations, failures, task_state
from ami.queues.letters import found
from ami.queues.models import Letter, TaskFailure, TaskRun, Worker
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
    run = TaskRun.objects.filter(task_id=task_id).first()
    context = {
        "state": state,
        "run": run,
        "is_unknown": not has_trace,
        "is_asked": is_asked,
        "task": state.task or (tries[0][0].task if tries else ""),
        "queue": ran_on(run, letters, tries),
        "by_name": settings.ANTENNA_TOPOLOGY.place(state.task).queue if state.task else "",
        "quoted_id": shlex.quote(task_id),
        "letters": letters,
        "tries": tries,
        "job": job_named(
            request, " ".join(row.arguments for row in letters), letters[0].job if letters else "", task_id
        ),
    }
    data = {
        "task_id": task_id,
        "state": state.state,
        "detail": state.detail,
        "task": state.task,
        "queue": context["queue"],
    }
    if answer := list_page.as_data(request, "task", tuple(data), lambda: [data]):
        return answer
    return list_page.page(request, "task", f"Task {task_id}", "workers", context)


def ran_on(run: TaskRun | None, letters: Sequence[Letter], tries: Sequence[Any]) -> str:
    """Return the queue that a task ran on, by its dead letter, or the worker that had it; empty if neither is known."""
    rows = settings.ANTENNA_TOPOLOGY.workloads
    for letter in letters:
        for row in rows:
            if row.dead_letter_queue == letter.queue:
                return row.queue
    node = (run.node if run else "") or (tries[0][0].node if tries else "")
    worker = Worker.objects.filter(node=node).only("queues").first() if node else None
    if worker is not None:
        return str(worker.queues[0]) if len(worker.queues) == 1 else ""
    # The start command names a worker by its row's key; its own row is deleted when it ends.
    return next((row.queue for row in rows if node.startswith(f"{row.key.lower()}@")), "")


def _letters(request: HttpRequest, task_id: str) -> list[Letter]:
    if not request.user.has_perm("queues.view_letter"):
        return []
    return list(Letter.objects.defer(*found.HEAVY).filter(task_id=task_id).order_by("-pk")[:SHOWN])


def _failures(request: HttpRequest, task_id: str) -> list[tuple[Any, list[tuple[str, bool]]]]:
    if not request.user.has_perm("queues.view_taskfailure"):
        return []
    rows = TaskFailure.objects.filter(task_id=task_id).order_by("-failed_at", "-pk")[:SHOWN]
    return [(row, failures.traceback_lines(row.traceback)) for row in rows]
