"""The admin's messages about an action: what was published where, or that nothing was selected."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from ami.queues.publish import PublishedTask

NOTHING_SELECTED = "None of the selected rows exists any more; nothing was done. Reload the list and choose again."


def report_published(request: HttpRequest, what: str, published: PublishedTask) -> None:
    """Show the task's id, its queue, and the links to its page and to Flower."""
    page = format_html(' <a href="{}">Its page</a>', reverse("console:task", args=[published.task_id]))
    link = format_html(' <a href="{}">Watch it in Flower</a>', published.flower_url) if published.flower_url else ""
    text = format_html("{}: task {} sent to {}.{}{}", what, published.task_id, published.queue, page, link)
    messages.success(request, text)


def selected_rows(request: HttpRequest, queryset: Any) -> list[Any]:
    """Return the selected rows, or values of them; warn the user when none is left."""
    rows = list(queryset)
    if not rows:
        messages.warning(request, NOTHING_SELECTED)
    return rows
