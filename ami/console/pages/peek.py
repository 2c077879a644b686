"""A look at the oldest messages of a queue, whose cost is said before."""

from typing import Any

from celery import current_app
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from ami.celery.broker_kind import kind_of
from ami.console import list_page
from ami.console.pages.queue import OneQueue
from ami.queues import audit_log, broker_errors, messages
from ami.queues.admin_site.operation_actions import expected
from ami.queues.messages import Peeked
from ami.queues.refusals import Refused
from ami.topology.broker import DELIVERY_LIMIT


class PeekPage(OneQueue):
    """Says what a look costs; a POST looks, and is recorded."""

    template = "console/peek.html"
    http_method_names = ["get", "head", "options", "post"]

    def heading(self) -> str:
        """Return what is looked at."""
        return f"Oldest messages of {self.queue}"

    def breadcrumbs(self) -> list[tuple[str, str]]:
        """Return the queue."""
        return [(reverse("console:queue", args=[self.queue]), self.queue)]

    def get(self, request: HttpRequest, **_: Any) -> HttpResponse:  # noqa: ARG002
        """Send the button, with the cost."""
        list_page.require(self.request, "queues.peek_queue")
        return self._shown(None, "", 200)

    def post(self, request: HttpRequest, **_: Any) -> HttpResponse:
        """Look, and show what was seen."""
        list_page.require(self.request, "queues.peek_queue")
        topology = settings.ANTENNA_TOPOLOGY
        try:
            with current_app.connection_for_read() as connection:
                found = messages.peek(topology, connection, self.queue)
        except Refused as error:
            return self._shown(None, str(error), 400)
        except expected() as error:
            return self._shown(None, broker_errors.sentence(error), 503)
        seen = {"seen": len(found.messages)}
        audit_log.record("peek", who=request.user, which=f"queue {self.queue}", after=seen, source="console")
        return self._shown(found, "", 200)

    def _shown(self, found: Peeked | None, error: str, status: int) -> HttpResponse:
        context = {
            "queue": self.queue,
            "most": messages.MOST_PEEKED,
            "counts": kind_of(current_app.connection_for_read()).is_managed,
            "limit": DELIVERY_LIMIT,
            "found": found,
            "error": error,
        }
        return TemplateResponse(self.request, self.template, {**self.around(), **context}, status=status)
