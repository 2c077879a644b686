"""The page of beat's schedule: what ticked, what is next, what is late, and the levers of one entry."""

from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods

from ami.console import forms_of_levers as levers
from ami.console import list_page
from ami.queues import schedule_operations, schedule_rows
from ami.queues.diagnostics.beat import SILENT
from ami.queues.models import Beat
from ami.queues.schedule_rows import ScheduleRow
from ami.queues.wishes import Operator

CHANGE = "django_celery_beat.change_periodictask"


@require_http_methods(["GET", "POST"])
def show(request: HttpRequest) -> HttpResponse:
    """Show every entry, late ones first."""
    list_page.require(request, "django_celery_beat.view_periodictask")
    if request.method == "POST":
        return levers.pull(request, LEVERS, request.POST.get("entry", ""), reverse("console:schedule"))
    rows = schedule_rows.rows()
    columns = tuple(field.name for field in fields(ScheduleRow))
    if data := list_page.as_data(request, "schedule", columns, lambda: map(asdict, rows)):
        return data
    beats: Any = Beat.objects.annotate(now=Now()).order_by("-seen_at")
    ages = [(beat.name, beat.now - beat.seen_at) for beat in beats]
    context = {
        "rows": rows,
        "beats": [(name, age.total_seconds(), age < SILENT) for name, age in ages],
        "is_beating": any(age < SILENT for _, age in ages),
        "has_enabled": any(row.is_enabled for row in rows),
        "may_change": request.user.has_perm(CHANGE),
        "soon": timedelta(seconds=schedule_rows.LATE_SECONDS),
    }
    template = "schedule_table" if list_page.PART in request.GET else "schedule"
    return list_page.page(request, template, "Schedule", "schedule", context)


def _switch(is_enabled: bool) -> Any:
    def operation(key: str, operator: Operator, why: str, _: dict[str, str]) -> str:
        entry = schedule_operations.switch(_key(key), operator, is_enabled=is_enabled, why=why)
        return f"{entry.name}. Beat reads it within seconds."

    return operation


def _run(key: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    published = schedule_operations.run_now(_key(key), operator, why=why)
    address = reverse("console:task", args=[published.task_id])
    return format_html('task <a href="{}">{}</a> sent to {}.', address, published.task_id, published.queue)


def _key(text: str) -> int:
    return int(text[:18]) if text.isascii() and text.isdecimal() else 0


LEVERS = (
    levers.LeverForm("enable", CHANGE, _switch(True), "Beat sends its ticks again."),
    levers.LeverForm("disable", CHANGE, _switch(False), "Beat sends no tick of it until it is enabled."),
    levers.LeverForm("run now", CHANGE, _run, "Publishes its task once, on behalf of you; its next tick stays."),
)
