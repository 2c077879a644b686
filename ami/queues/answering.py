"""What a person in the admin is told after a click that became a task."""

from django.contrib import messages
from django.http import HttpRequest
from django.utils.html import format_html

from ami.queues.asking import Asked


def tell(request: HttpRequest, what: str, asked: Asked) -> None:
    """Tell what was sent: the task's id, its queue, and the link to Flower."""
    link = format_html(' <a href="{}">Watch it in Flower</a>', asked.flower_url) if asked.flower_url else ""
    messages.success(request, format_html("{}: task {} sent to {}.{}", what, asked.task_id, asked.queue, link))
