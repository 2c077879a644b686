"""What every page of the console does: its parts are polled, its tables are CSV and JSON too, and its user is staff."""

from collections.abc import Callable, Mapping
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
from ami.console.polls import LIVE
from ami.console.refresher import FRESH_SECONDS
from ami.console.tables import Table, exported
from ami.console.watchers import answer, etag_of, session_of, watchers
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import Snapshot

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
        self.allowed = allowed = levers.allowed(request.user)
        if not self.is_open_to(allowed):
            raise PermissionDenied
        snapshot = shared.current(FRESH_SECONDS)
        if kind := request.GET.get("format"):
            return self._exported(request, kind, snapshot)
        watchers.trust(session_of(request), allowed)
        if self.part_asked(request):
            return self.poll(snapshot, allowed)
        etag = etag_of(allowed, str(snapshot.version))
        context = self._context(snapshot, allowed)
        parts = {name: self._part(name, etag, context) for name in self.parts}
        return TemplateResponse(request, self.template, {**self.around(), **context, "parts": parts})

    def is_open_to(self, allowed: frozenset[str]) -> bool:
        """Whether a user with these permissions may see the page."""
        return not self.needs or self.needs in allowed

    def poll(self, snapshot: Snapshot, allowed: frozenset[str]) -> HttpResponse:
        """Send the part that is asked for, or 304, to who has these permissions; it is rendered once for all."""
        self.allowed = allowed
        address, etag = self.request.get_full_path(), etag_of(allowed, str(snapshot.version))
        part = b"" if self.request.headers.get("If-None-Match") == etag else watchers.kept(address, etag)
        if part is None:
            part = self._rendered(self.part_asked(self.request), self._context(snapshot, allowed)).encode()
            watchers.keep(address, etag, part)
        return answer(self.request, etag, part)

    def part_asked(self, request: HttpRequest) -> str:
        """Return the name of the part that a poll asks for; empty where the whole page is asked for."""
        name = str(request.GET.get(LIVE, ""))
        return name if name in self.parts else ""

    def here(self) -> str:
        """Return the address of this page with its filters, to which a lever's form returns."""
        query = self.request.GET.copy()
        query.pop(LIVE, None)
        return f"{self.request.path}?{query.urlencode()}" if query else self.request.path

    def _exported(self, request: HttpRequest, kind: str, snapshot: Snapshot) -> HttpResponse:
        tables = {table.name: table for table in self.tables(snapshot)}
        table = tables.get(request.GET.get("table", next(iter(tables), "")))
        if table is None or kind not in ("csv", "json"):
            known = f"Give format=csv or format=json, and one of the tables: {', '.join(tables) or 'there is none'}."
            return HttpResponse(known, status=400, content_type="text/plain; charset=utf-8")
        if table.needs and table.needs not in self.allowed:
            raise PermissionDenied
        return exported(table, kind, snapshot.taken_at)

    def _context(self, snapshot: Snapshot, allowed: frozenset[str]) -> dict[str, Any]:
        return {"snapshot": snapshot, "allowed": allowed, "here": self.here(), **self.figures(snapshot)}

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
        html = self._rendered(name, context)
        return render_to_string("console/part.html", {**poll, "snapshot": context["snapshot"], "html": html})


def guarded(page: type[Page]) -> Callable[..., HttpResponseBase]:
    """Return the view of a page: for staff alone; a poll of a session that was just checked costs no statement."""
    inner = admin.site.admin_view(page.as_view())

    def view(request: HttpRequest, **given: Any) -> HttpResponseBase:
        if request.method != "GET" or not page().part_asked(request):
            return inner(request, **given)
        known = watchers.trusted(session_of(request))
        if known is not None and (asked := page()).is_open_to(known.allowed):
            asked.setup(request, **given)
            return asked.poll(shared.current(FRESH_SECONDS), known.allowed)
        # A redirect would put the form to sign in into the middle of the page.
        return inner(request, **given) if admin.site.has_permission(request) else _signed_out(request)

    view.__name__ = page.__name__
    return view


def _signed_out(request: HttpRequest) -> HttpResponse:
    query = request.GET.copy()
    query.pop(LIVE, None)
    back = f"{request.path}?{query.urlencode()}" if query else request.path
    address = f"{reverse('admin:login')}?{urlencode({'next': back})}"
    return HttpResponse(status=401, headers={"HX-Redirect": address, "Cache-Control": "private, no-store"})
