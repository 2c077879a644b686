"""What the admin tells a user about an action: what was sent where, or that nothing was selected."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.html import format_html

from ami.queues.publish import PublishedTask

GONE = "None of the selected rows exists any more; nothing was done. Reload the list and choose again."


def report_published(request: HttpRequest, what: str, published: PublishedTask) -> None:
    """Tell what was sent: the task's id, its queue, and the link to Flower."""
    link = format_html(' <a href="{}">Watch it in Flower</a>', published.flower_url) if published.flower_url else ""
    messages.success(request, format_html("{}: task {} sent to {}.{}", what, published.task_id, published.queue, link))


def selected_rows(request: HttpRequest, queryset: Any) -> list[Any]:
    """Return the selected rows, or values of them; warn the person where none is left."""
    rows = list(queryset)
    if not rows:
        messages.warning(request, GONE)
    return rows
