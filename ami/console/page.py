"""What every page of the console does: its parts are polled, its tables are CSV and JSON too, and its user is staff."""

import hashlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views import View

from ami.console import levers
from ami.console.tables import Table, exported
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import Snapshot

#: The parameter of a poll: the part of the page that it asks for.
LIVE = "live"
#: A page polls each five seconds, and each two while a job runs or a worker has not confirmed an operation.
POLL_SECONDS, BUSY_POLL_SECONDS = 5, 2
#: Figures are at most so old: with a poll's five seconds, what waits is seen within ten. An operation, or a worker that
#: changes, outdates them at once, and tasks that change after `shared.TASKS_SECONDS`.
FRESH_SECONDS = 4.5
#: A part is a piece of a page, whose own policy counts; opened by itself it may load nothing.
PART_HEADERS = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
#: The parts that this process has rendered, by address and ETag; at most `MOST_PARTS`.
rendered: dict[tuple[str, str], bytes] = {}
MOST_PARTS = 100

#: The navigation: URL name and text of each tab.
TABS = (
    ("overview", "Overview"),
    ("workers", "Workers"),
    ("calls", "Calls"),
    ("letters", "Letters"),
    ("schedule", "Schedule"),
    ("audit", "Audit log"),
    ("handbook", "Handbook"),
)


class Page(View):
    """A page. A subclass names its ``template``, and overrides `figures`, and `tables` where it has some.

    ``parts`` are the templates that are polled, by name; the page's template shows each as ``{{ parts.NAME }}``. A part
    depends on its address, on the snapshot and on the permissions in `allowed`, on nothing else of the user: all who
    watch share it. It has no form, since a form has a user's token: its buttons are links to a lever's form.
    """

    tab = ""
    title = ""
    template = "console/page.html"
    #: The permission without which nothing of the page is sent.
    needs = ""
    #: The user's permissions, of those of `ami.console.levers.allowed`.
    allowed: frozenset[str] = frozenset()
    parts: Mapping[str, str] = {}
    http_method_names = ["get", "head", "options"]

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the context of the page and of its parts.

        Raises:
            Http404: what the address names does not exist.
        """
        raise NotImplementedError

    def tables(self, snapshot: Snapshot) -> list[Table]:  # noqa: ARG002
        """Return what ``?format=csv&table=NAME`` sends; without a name it is the first."""
        return []

    def heading(self) -> str:
        """Return the page's title."""
        return self.title

    def breadcrumbs(self) -> list[tuple[str, str]]:
        """Return the pages above this one, as address and text; the overview is above all."""
        return []

    def get(self, request: HttpRequest, **_: Any) -> HttpResponse:
        """Send the page, one part of it, or a table."""
        self.allowed = levers.allowed(request.user)
        if self.needs and self.needs not in self.allowed:
            raise PermissionDenied
        snapshot = shared.current(FRESH_SECONDS)
        if kind := request.GET.get("format"):
            return self._exported(request, kind, snapshot)
        etag = _etag(self.allowed, snapshot.version)
        if name := self.part_asked(request):
            return answer(request, etag, lambda: self._shared(name, etag, snapshot), poll_seconds(snapshot))
        context = self._context(snapshot)
        parts = {name: self._part(name, etag, context) for name in self.parts}
        return TemplateResponse(request, self.template, {**self.around(), **context, "parts": parts})

    def part_asked(self, request: HttpRequest) -> str:
        """Return the name of the part that a poll asks for; empty where the whole page is asked for."""
        name = str(request.GET.get(LIVE, ""))
        return name if name in self.parts else ""

    def _shared(self, name: str, etag: str, snapshot: Snapshot) -> bytes:
        """Return a part, rendered once for all who see the same."""
        key = self.request.get_full_path(), etag
        if (part := rendered.get(key)) is None:
            part = self._rendered(name, self._context(snapshot)).encode()
            if len(rendered) >= MOST_PARTS:
                rendered.clear()
            rendered[key] = part
        return part

    def _exported(self, request: HttpRequest, kind: str, snapshot: Snapshot) -> HttpResponse:
        tables = {table.name: table for table in self.tables(snapshot)}
        table = tables.get(request.GET.get("table", next(iter(tables), "")))
        if table is None or kind not in ("csv", "json"):
            known = f"Give format=csv or format=json, and one of the tables: {', '.join(tables) or 'there is none'}."
            return HttpResponse(known, status=400, content_type="text/plain; charset=utf-8")
        if table.needs and table.needs not in self.allowed:
            raise PermissionDenied
        return exported(table, kind, snapshot.taken_at)

    def _context(self, snapshot: Snapshot) -> dict[str, Any]:
        around = {"snapshot": snapshot, "allowed": self.allowed, "here": here(self.request)}
        return {**around, **self.figures(snapshot)}

    def around(self) -> dict[str, Any]:
        """Return the context of what stands around a page's figures."""
        around = {**admin.site.each_context(self.request), "is_nav_sidebar_enabled": False}
        return {**around, "title": self.heading(), "tab": self.tab, "tabs": TABS, "above": self.breadcrumbs()}

    def _rendered(self, name: str, context: dict[str, Any]) -> SafeString:
        return render_to_string(self.parts[name], context)

    def _part(self, name: str, etag: str, context: dict[str, Any]) -> SafeString:
        query = self.request.GET.copy()
        query[LIVE] = name
        poll = {"name": name, "etag": etag, "address": f"{self.request.path}?{query.urlencode()}"}
        poll |= {"html": self._rendered(name, context), "snapshot": context["snapshot"]}
        return render_to_string("console/part.html", {**poll, "every": poll_seconds(context["snapshot"])})


def _etag(allowed: frozenset[str], version: int) -> str:
    """Return the ETag of a part: what its reader may see, and the version of its figures."""
    return f'"{hashlib.sha256(" ".join(sorted(allowed)).encode()).hexdigest()[:12]}.{version}"'


def poll_seconds(snapshot: Snapshot) -> int:
    """Return after how long a page asks again."""
    return BUSY_POLL_SECONDS if snapshot.jobs or _is_unconfirmed(snapshot) else POLL_SECONDS


def _is_unconfirmed(snapshot: Snapshot) -> bool:
    """Whether a live worker has yet to do what an operation wants of it."""
    paused = {queue.queue for queue in snapshot.queues if queue.paused}
    return any(
        worker.parked or paused & set(worker.queues) != set(worker.closed_queues)
        if worker.state in ("running", "held")
        else worker.state == "parked" and not worker.parked
        for worker in snapshot.workers
    )


def answer(request: HttpRequest, etag: str, part: Callable[[], bytes], seconds: int = POLL_SECONDS) -> HttpResponse:
    """Return what a poll asks for, or 304 where the client has it; ``seconds`` until the next poll."""
    headers = {**PART_HEADERS, "ETag": etag, "Poll-Seconds": str(seconds)}
    if request.headers.get("If-None-Match") == etag:
        return HttpResponse(status=304, headers=headers)
    return HttpResponse(part(), headers=headers)


def here(request: HttpRequest) -> str:
    """Return the address of the page with its filters, to which a lever's form returns."""
    query = request.GET.copy()
    query.pop(LIVE, None)
    return f"{request.path}?{query.urlencode()}" if query else request.path


def staff(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a view for staff alone; a poll of a user who has signed out leads the page to the sign-in."""
    inner = admin.site.admin_view(view)

    @wraps(view)
    def guarded(request: HttpRequest, **given: Any) -> HttpResponseBase:
        if LIVE not in request.GET or admin.site.has_permission(request):
            return inner(request, **given)
        # A redirect would put the form to sign in into the middle of the page.
        address = f"{reverse('admin:login')}?{urlencode({'next': here(request)})}"
        return HttpResponse(status=401, headers={"HX-Redirect": address, "Cache-Control": "private, no-store"})

    return guarded
