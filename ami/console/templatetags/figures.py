"""Times and sizes of rows as a person reads them."""

import re
from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ami.celery.shown_time import shown_time
from ami.console import quantities
from ami.queues.letters import found
from ami.queues.models import Letter

register = template.Library()


@register.filter
def kib(count: float) -> str:
    """Return a number of KiB as a size."""
    return quantities.size(count * 1024)


@register.filter
def why(row: Letter) -> str:
    """Return why a letter died."""
    return found.why(row)


@register.filter
def every(words: str) -> str:
    """Return the words of a schedule; of a long interval in seconds, in minutes or hours."""
    seconds = re.fullmatch(r"every (\d+) seconds", words)
    return f"every {quantities.duration(int(seconds[1]))}" if seconds else words


@register.filter
def at(moment: datetime | str | None) -> SafeString | str:
    """Return a time as an element that the page's script writes in the reader's zone; without scripts it is ours."""
    if moment is None:
        return "never"
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    written = moment.astimezone(UTC).isoformat(timespec="seconds")
    return format_html('<time datetime="{}">{}</time>', written, shown_time(moment))
