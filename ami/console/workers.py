"""The pages of workers: by host with what each runs, and one worker, service or host with its levers."""

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from ami.console import forms_of_levers as levers
from ami.console import list_page, seen_workers
from ami.queues import worker_operations
from ami.queues.admin_site.operation_actions import NO_WAIT, PROCESSES, UNTIL, scale, wish
from ami.telemetry.snapshots.shape import WorkerFigures

SPANS = {"1h": 3600.0, "24h": 86400.0}
CONTROL = "queues.control_workers"
COLUMNS = (
    "host",
    "node",
    "service",
    "version",
    "state",
    "why",
    "queues",
    "closed_queues",
    "concurrency",
    "children",
    "pid",
    "started_at",
    "seen_seconds",
    "memory_used_bytes",
    "memory_limit_bytes",
    "hold_percent",
    "release_percent",
    "held_seconds",
    "reasons",
    "running",
)
LEVERS = (
    levers.LeverForm(
        "park",
        CONTROL,
        wish(worker_operations.park, **NO_WAIT),
        "It finishes what runs and takes nothing more, also after a restart.",
        (UNTIL,),
    ),
    levers.LeverForm(
        "unpark",
        CONTROL,
        wish(worker_operations.unpark, **NO_WAIT),
        "It takes tasks again unless its queue is paused.",
    ),
    levers.LeverForm("scale", CONTROL, scale, "Running tasks finish first.", (PROCESSES,)),
    levers.LeverForm(
        "restart",
        CONTROL,
        wish(worker_operations.restart),
        "Replaces its processes one after the other, each when its task has ended.",
    ),
    levers.LeverForm(
        "stop",
        CONTROL,
        wish(worker_operations.stop, **NO_WAIT),
        "Parks it and ends what it runs: SIGTERM, SIGKILL after ten seconds. The messages return to their queue.",
        (UNTIL,),
        is_dangerous=True,
    ),
)


@require_GET
def hosts(request: HttpRequest) -> HttpResponse:
    """Show every worker by host; ``?part=1`` is what the page asks for every two seconds."""
    list_page.require(request, "queues.view_worker")
    snapshot = seen_workers.snapshot()
    wanted = {name: request.GET.get(name, "").strip() for name in ("queue", "state", "host")}
    shown = [worker for worker in snapshot.workers if _fits(worker, wanted)]
    if data := list_page.as_data(request, "workers", COLUMNS, lambda: map(seen_workers.as_row, shown)):
        return data
    context = {
        "hosts": seen_workers.hosts(shown),
        "snapshot": snapshot,
        "wanted": wanted,
        "states": sorted({worker.state for worker in snapshot.workers}),
        "queues": sorted({queue for worker in snapshot.workers for queue in worker.queues}),
        "is_filtered": any(wanted.values()),
        "gauge_width": seen_workers.GAUGE_WIDTH,
        "part": f"?{urlencode({**{name: value for name, value in wanted.items() if value}, 'part': 1})}",
    }
    template = "workers_table" if request.GET.get("part") else "workers"
    return list_page.page(request, template, "Workers and hosts", context)


@require_http_methods(["GET", "POST"])
def one(request: HttpRequest, name: str) -> HttpResponse:
    """Show the worker of a node, or those of a service or host, with their levers; of one its memory over time."""
    list_page.require(request, "queues.view_worker")
    if request.method == "POST":
        return levers.pull(request, LEVERS, name, reverse("console:worker", args=[name]))
    snapshot = seen_workers.snapshot()
    found = seen_workers.named(snapshot.workers, name)
    if not found:
        raise Http404("no such worker, service or host")
    context: dict[str, Any] = {
        "hosts": seen_workers.hosts(found),
        "snapshot": snapshot,
        "name": name,
        "levers": levers.allowed(request, LEVERS),
        "gauge_width": seen_workers.GAUGE_WIDTH,
        "part": "?part=1",
    }
    if request.GET.get("part"):
        return list_page.page(request, "workers_table", name, context)
    span = request.GET.get("span") if request.GET.get("span") in SPANS else "1h"
    is_node = len(found) == 1 and found[0].node == name
    context |= {
        "is_node": is_node,
        "span": span,
        "spans": tuple(SPANS),
        "chart": seen_workers.memory_chart(name, SPANS[str(span)]) if is_node else None,
        "chart_width": seen_workers.CHART_WIDTH,
        "chart_height": seen_workers.CHART_HEIGHT,
    }
    return list_page.page(request, "worker", name, context)


def _fits(worker: WorkerFigures, wanted: dict[str, str]) -> bool:
    queue, state, host = wanted["queue"], wanted["state"], wanted["host"]
    return (
        (not queue or queue in worker.queues)
        and (not state or state == worker.state)
        and (not host or host == worker.host)
    )
