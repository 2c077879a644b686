"""The form of a lever: what it does, a reason, a confirmation."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme

from ami.console import list_page
from ami.console.levers import DURATIONS, LEVERS, Lever
from ami.console.page import Page
from ami.queues import broker_errors
from ami.queues.admin_site.operation_actions import expected, fact_of
from ami.queues.refusals import Refused
from ami.queues.wishes import LONGEST_WHY, Operator
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import Snapshot

LONGEST_VALUE = 255


class LeverPage(Page):
    """Asks, and then runs the operation; both need its permission."""

    template = "console/lever.html"
    http_method_names = ["get", "head", "options", "post"]

    def setup(self, request: HttpRequest, *args: Any, **given: Any) -> None:
        """Find the lever.

        Raises:
            Http404: there is no such operation.
        """
        super().setup(request, *args, **given)
        self.target: str = given["target"]
        lever = LEVERS.get(given["verb"])
        if lever is None:
            raise Http404(f"There is no operation '{given['verb'][:60]}'.")
        self.lever: Lever = lever

    def heading(self) -> str:
        """Return what is asked."""
        return f"{self.lever.text} {self.target}?"

    def get(self, request: HttpRequest, **_: Any) -> HttpResponse:  # noqa: ARG002
        """Send the form."""
        list_page.require(self.request, self.lever.needs)
        return self._form({}, "", 200)

    def post(self, request: HttpRequest, **_: Any) -> HttpResponse:
        """Run the operation and return to where its button was; what is refused comes back in the form."""
        list_page.require(self.request, self.lever.needs)
        names = [field.name for field in self.lever.fields]
        given = {name: str(request.POST.get(name, "")).strip()[:LONGEST_VALUE] for name in names}
        why = str(request.POST.get("why", "")).strip()
        try:
            sentence = self.lever.run(self.target, Operator(request.user, "console"), why, given)
        except Refused as error:
            return self._form({**given, "why": why}, str(error), 400)
        except expected() as error:
            return self._form({**given, "why": why}, broker_errors.sentence(error), 503)
        # The page that follows, and everybody's next poll, show what it has changed.
        shared.forget()
        shared.current(0.0)
        messages.success(request, format_html("{}: {}. {}", self.lever.text, self.target, sentence))
        return redirect(self._back())

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:  # noqa: ARG002
        """Return what the form asks for."""
        return {}

    def _form(self, given: dict[str, str], error: str, status: int) -> HttpResponse:
        fields = [(field, given.get(field.name, "")) for field in self.lever.fields]
        context = {
            "fact": fact_of(self.target, self.lever.fact),
            "lever": self.lever,
            "target": self.target,
            "effect": self.lever.effect.format(target=self.target),
            "fields": fields,
            "why": given.get("why", ""),
            "longest_why": LONGEST_WHY,
            "error": error,
            "durations": DURATIONS,
            "queues": [row.queue for row in settings.ANTENNA_TOPOLOGY.workloads if row.queue != self.target],
            "next": self._back(),
        }
        return TemplateResponse(self.request, self.template, {**self.around(), **context}, status=status)

    def _back(self) -> str:
        """Return the address to go back to: one of this site's, else the overview."""
        given = str(self.request.POST.get("next") or self.request.GET.get("next") or "")
        is_ours = url_has_allowed_host_and_scheme(given, allowed_hosts=None) and given.startswith("/")
        return given if is_ours else reverse("console:overview")
