"""Times of rows as a person reads them."""

import re
from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ami.console import quantities

register = template.Library()


@register.filter
def kib(count: float) -> str:
    """Return a number of KiB as a size."""
    return quantities.size(count * 1024)


@register.filter
def every(words: str) -> str:
    """Return the words of a schedule; of a long interval in seconds, in minutes or hours."""
    found = re.fullmatch(r"every (\d+) seconds", words)
    return f"every {quantities.duration(int(found[1]))}" if found else words


@register.filter
def at(moment: datetime | str | None) -> SafeString | str:
    """Return a time as an element that the page's script writes in the reader's zone; without scripts it is UTC."""
    if moment is None:
        return "never"
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    moment = moment.astimezone(UTC)
    text = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(timespec="seconds"), text, text)
