"""What the console's lists share: permissions, pages of rows, and the same table as CSV or JSON."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils import timezone

from ami.console import levers
from ami.console.page import TABS, answer, here
from ami.console.tables import Column, Table, exported

PAGE_ROWS = 50
#: Of one answer as CSV or JSON; filters reach the rest.
MOST_ROWS = 10_000
FORMATS = ("csv", "json")
#: Ages, which the page's script keeps counting.
AGES = re.compile(r'(<time class="ago"[^>]*>)[^<]*')


def require(request: HttpRequest, *permissions: str) -> None:
    """Raise PermissionDenied, a 403, unless the user has every permission."""
    if not request.user.has_perms(permissions):
        raise PermissionDenied


def page(request: HttpRequest, template: str, title: str, tab: str, context: dict[str, Any]) -> HttpResponse:
    """Return a page of the console; ``tab`` is one of `ami.console.page.TABS`, ``above`` the pages above this one."""
    around = {**admin.site.each_context(request), "is_nav_sidebar_enabled": False, "title": title, "above": []}
    around |= {"tab": tab, "tabs": TABS, "formats": FORMATS}
    return TemplateResponse(request, f"console/{template}.html", {**around, **_for_levers(request), **context})


def part(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """Return what a poll asks for; 304 where the client has that, and it is only older."""
    html = render_to_string(f"console/{template}.html", {**_for_levers(request), **context}, request)
    digest = hashlib.sha256(AGES.sub(r"\1", html).encode()).hexdigest()
    return answer(request, f'"{digest[:32]}"', html.encode)


def _for_levers(request: HttpRequest) -> dict[str, Any]:
    return {"here": here(request), "allowed": levers.allowed(request.user)}


def one_page(request: HttpRequest, rows: Any) -> Page[Any]:
    """Return the rows of ``?page=``, the last page for a number beyond it."""
    return Paginator(rows, PAGE_ROWS).get_page(request.GET.get("page"))


def as_data(
    request: HttpRequest, name: str, columns: Sequence[str], rows: Callable[[], Iterable[dict[str, Any]]]
) -> HttpResponse | None:
    """Return the table as ``?format=`` asks, at most `MOST_ROWS`; None for the page itself.

    Raises:
        BadRequest: there is no such format.
    """
    wanted = request.GET.get("format", "")
    if not wanted:
        return None
    if wanted not in FORMATS:
        raise BadRequest(f"format is csv or json, not '{wanted[:20]}'.")
    table = Table(name, [Column(column, column) for column in columns], list(rows()))
    return exported(table, wanted, timezone.now().timestamp())
