"""Figures, times, icons and buttons of the console's templates."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify

from ami.console import quantities
from ami.console.bars import Bars
from ami.console.levers import LEVERS
from ami.console.sparkline import sparkline
from ami.console.templatetags.figures import at

register = template.Library()

register.filter("duration", quantities.duration)
register.filter("size", quantities.size)
register.filter("number", quantities.number)

#: Behind these a long name may be broken.
BREAKS = re.compile(r"(?<=[._@/:-])")
#: Paths on a grid of 16 by 16.
ICONS = {
    "ok": "M3.5 8.5l3 3 6-7",
    "bad": "M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.4",
    "warn": "M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.4",
    "unknown": "M8 8m-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0M8 8v.2",
    "none": "M3 8h10",
    "paused": "M5.5 3.5v9M10.5 3.5v9",
    "run": "M5 3.5l7 4.5-7 4.5z",
    "error": "M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.4",
    "warning": "M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.4",
    "starting": "M8 8m-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0M8 4.8v3.2l2.2 1.6",
    "unseen": "M2 8s2.2-4 6-4 6 4 6 4-2.2 4-6 4-6-4-6-4zM3 13L13 3",
}


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return an icon; the words stand beside it."""
    return format_html(
        '<svg class="icon icon-{}" viewBox="0 0 16 16" aria-hidden="true"><path d="{}"/></svg>',
        name,
        ICONS.get(name, ICONS["unknown"]),
    )


@register.simple_tag
def when(epoch: float | None) -> SafeString | str:
    """Return a time, which the script shows in the reader's zone."""
    if epoch is None:
        return quantities.UNSEEN
    return at(datetime.fromtimestamp(epoch, UTC))


@register.simple_tag
def ago(epoch: float | None, now: float) -> SafeString | str:
    """Return how long ago a time was; the script keeps it counting."""
    if epoch is None:
        return quantities.UNSEEN
    age = quantities.duration(max(0.0, now - epoch))
    return format_html('<time class="ago" datetime="{}" data-at="{}">{}</time>', quantities.iso(epoch), epoch, age)


@register.filter
def soft(name: str) -> SafeString:
    """Return a name that a browser may break behind its dots, dashes and underscores, not within a word."""
    return format_html_join(mark_safe("<wbr>"), "{}", ((part,) for part in BREAKS.split(str(name)) if part))


@register.filter
def leaf(name: str) -> str:
    """Return the last part of a task's name."""
    return str(name).rpartition(".")[2]


@register.filter
def stem(name: str) -> str:
    """Return a task's name without its last part."""
    return str(name).rpartition(".")[0]


@register.simple_tag
def spark(values: Sequence[float | None], what: str) -> SafeString:
    """Return the line of the last hour."""
    return sparkline(values, what)


@register.simple_tag
def bar_chart(bars: Bars, label: str) -> SafeString:
    """Return the bars of the last hours."""
    return bars.drawn(label)


@register.simple_tag
def address(name: str, *names: str) -> str:
    """Return the address of a page of the console; empty where a name, such as a message's id, fits into none."""
    return _address(name, names) if all(names) else ""


@lru_cache(4096)
def _address(name: str, names: tuple[str, ...]) -> str:
    try:
        return reverse(f"console:{name}", args=names)
    except NoReverseMatch:
        return ""


@register.simple_tag(takes_context=True)
def lever(context: Any, verb: str, target: str, text: str = "", place: str = "") -> SafeString | str:
    """Return the button of a lever, nothing where the user may not use it; ``place`` tells two of a page apart."""
    found = LEVERS[verb]
    form = address("lever", verb, target)
    if found.needs not in context.get("allowed", ()) or not form:
        return ""
    return format_html(
        '<a class="lever{}" id="{}" href="{}" aria-label="{} {}">{}</a>',
        " grave" if found.grave else "",
        f"{place}lever-{verb}-{slugify(target)}",
        f"{form}?{urlencode({'next': context['here']})}",
        text or found.text,
        target,
        text or found.text,
    )


@register.filter
def percent(share: float | None) -> str:
    """Return a share of 0 to 1 in percent."""
    return quantities.UNSEEN if share is None else f"{share * 100:.0f}%"


@register.simple_tag(takes_context=True)
def exports(context: Any, *names: str) -> SafeString:
    """Return the links to tables as CSV and JSON, with the page's filters."""
    here = context["here"]
    separator = "&" if "?" in here else "?"
    links = [
        format_html(
            '<span class="export">{} <a href="{}">CSV</a> <a href="{}">JSON</a></span>',
            name.replace("_", " "),
            f"{here}{separator}{urlencode({'format': 'csv', 'table': name})}",
            f"{here}{separator}{urlencode({'format': 'json', 'table': name})}",
        )
        for name in names
    ]
    return SafeString(" ".join(links))
