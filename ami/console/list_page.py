"""What the console's lists share: permissions, pages of rows, and the same table as CSV or JSON."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse

PAGE_ROWS = 50
#: Of one answer as CSV or JSON; filters reach the rest.
MOST_ROWS = 10_000
FORMATS = ("csv", "json")
#: A spreadsheet would run what begins with one of these.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def require(request: HttpRequest, *permissions: str) -> None:
    """Raise PermissionDenied, a 403, unless the user has every permission."""
    if not request.user.has_perms(permissions):
        raise PermissionDenied


def page(request: HttpRequest, template: str, title: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """Return a page of the console."""
    whole = {**admin.site.each_context(request), "title": title, "formats": FORMATS, **context}
    return TemplateResponse(request, f"console/{template}.html", whole, status=status)


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
    found = [{name: row.get(name) for name in columns} for row in rows()]
    if wanted == "json":
        answer: HttpResponse = JsonResponse({name: found})
    else:
        answer = HttpResponse(_csv(columns, found), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.{wanted}"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        value = "; ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
