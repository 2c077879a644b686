"""Times of rows as a person reads them."""

from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def at(moment: datetime | float | None) -> SafeString | str:
    """Return a time as an element that the page's script writes in the reader's zone; without scripts it is UTC."""
    if moment is None:
        return "never"
    if isinstance(moment, (int, float)):
        moment = datetime.fromtimestamp(moment, UTC)
    moment = moment.astimezone(UTC)
    text = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(timespec="seconds"), text, text)
