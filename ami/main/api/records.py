"""What operators did and why tasks failed, for staff."""

from dataclasses import asdict
from typing import Any

from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.operations import OperationsView, answers, number
from ami.queues import failures, overview

MOST_AUDIT_ENTRIES = 500


class AuditViewSet(OperationsView):
    """What operators did, newest first."""

    needs = {"list": "view_auditentry"}
    reads = {"list": ("limit",)}

    @answers("limit")
    def list(self, request: Request) -> Response:
        """Return the latest entries, at most ``limit`` (50; 500 at most)."""
        return Response(overview.audit(number(request, "limit", MOST_AUDIT_ENTRIES, default=50)))


class FailureViewSet(OperationsView):
    """Why tasks failed: tries, newest first, and their causes."""

    needs = {"list": "view_taskfailure", "causes": "view_taskfailure"}
    reads = {
        "list": ("limit", "task", "task_id", "cause", "search"),
        "causes": ("limit", "task", "search"),
    }

    @answers(*reads["list"])
    def list(self, request: Request) -> Response:
        """Return the latest tries that failed, at most ``limit`` (50; 500 at most); with ``task_id`` the tracebacks."""
        limit, is_one = number(request, "limit", MOST_AUDIT_ENTRIES, default=50), "task_id" in request.query_params
        rows = _failures(request) if is_one else _failures(request).defer("traceback")
        return Response([failures.as_dict(row, with_traceback=is_one) for row in rows[:limit]])

    @answers(*reads["causes"])
    @action(detail=False, methods=["get"])
    def causes(self, request: Request) -> Response:
        """Return the causes of these failures with their counts, the most frequent first."""
        limit = number(request, "limit", MOST_AUDIT_ENTRIES, default=50)
        return Response([asdict(each) for each in failures.causes(_failures(request), limit)])


def _failures(request: Request) -> Any:
    names = ("task", "task_id", "cause", "search")
    return failures.found(**{name: request.query_params.get(name, "")[:255] for name in names})
