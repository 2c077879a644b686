"""The page of beat's schedule: what ticked, what is next, what is late, and the levers of one entry."""

from dataclasses import asdict, fields
from typing import Any

from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_GET

from ami.celery.tick_claims import MISFIRES
from ami.console import list_page
from ami.console.levers import Lever, add
from ami.console.page import LIVE
from ami.queues import schedule_operations, schedule_rows, start_commands, startup
from ami.queues.admin_site.operation_actions import Field, Operation
from ami.queues.diagnostics.beat import SILENT
from ami.queues.models import Beat
from ami.queues.schedule_rows import ScheduleRow
from ami.queues.wishes import Operator


@require_GET
def show(request: HttpRequest) -> HttpResponse:
    """Show every entry, late ones first."""
    list_page.require(request, "django_celery_beat.view_periodictask")
    rows = schedule_rows.rows()
    columns = tuple(field.name for field in fields(ScheduleRow))
    if data := list_page.as_data(request, "schedule", columns, lambda: map(asdict, rows)):
        return data
    beats: Any = Beat.objects.annotate(now=Now()).order_by("-seen_at")
    seen = [(beat.name, beat.seen_at.timestamp(), beat.now.timestamp()) for beat in beats]
    ages = [now - at for _, at, now in seen]
    context = {
        "rows": rows,
        "beats": [(*each, age < SILENT.total_seconds()) for each, age in zip(seen, ages, strict=True)],
        "is_beating": any(age < SILENT.total_seconds() for age in ages),
        "has_enabled": any(row.is_enabled for row in rows),
        "start_beat": start_commands.of_beat(),
    }
    context["is_starting"] = not context["is_beating"] and startup.is_starting()
    if LIVE in request.GET:
        return list_page.part(request, "schedule_table", context)
    return list_page.page(request, "schedule", "Schedule", "schedule", context)


def _switch(is_enabled: bool) -> Operation:
    def operation(name: str, operator: Operator, why: str, _: dict[str, str]) -> str:
        schedule_operations.switch(name, operator, is_enabled=is_enabled, why=why)
        return "Beat reads it within seconds."

    return operation


def _run(name: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    published = schedule_operations.run_now(name, operator, why=why)
    address = reverse("console:task", args=[published.task_id])
    return format_html('Task <a href="{}">{}</a> was sent to {}.', address, published.task_id, published.queue)


def _misfire(name: str, operator: Operator, why: str, given: dict[str, str]) -> str:
    before = schedule_operations.set_misfire(name, operator, given["misfire"], why=why)
    return f"It was {before} and is {given['misfire']}; beat reads it within seconds."


CHANGE = "django_celery_beat.change_periodictask"
add(
    Lever(
        "run-entry",
        CHANGE,
        _run,
        "The task of {target} is published once, on your behalf. Its next tick stays.",
        label="Run now",
    ),
    Lever(
        "misfire",
        CHANGE,
        _misfire,
        "Late ticks of {target}: none is made up, one run is for all of them, or each gets a run of its own (all).",
        (Field("misfire", "Late ticks", "choice", is_required=True, choices=MISFIRES),),
        label="Late ticks",
    ),
    Lever("enable-entry", CHANGE, _switch(True), "Beat sends ticks of {target} again.", label="Enable"),
    Lever(
        "disable-entry",
        CHANGE,
        _switch(False),
        "Beat sends no tick of {target} until it is enabled. What runs goes on.",
        label="Disable",
    ),
)
