"""Audit of changes through the API: in the log, and in the admin's history of each row; what is refused is counted."""

from collections.abc import Callable
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION
from django.http import HttpRequest, HttpResponse
from rest_framework.permissions import SAFE_METHODS

from ami.queues import audit_log


class AuditMiddleware:
    """Records every unsafe API request of an authenticated client that is not refused, and counts the others.

    A view lists actions that workers call all the time in ``unrecorded``; they are skipped. Bodies are not recorded.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        view = getattr(getattr(request.resolver_match, "func", None), "cls", None)
        if request.method not in SAFE_METHODS and view is not None and request.user.is_authenticated:
            _record(request, response, view)
        return response


def _record(request: HttpRequest, response: HttpResponse, view: Any) -> None:
    match: Any = request.resolver_match
    action = getattr(match.func, "actions", {}).get(str(request.method).lower(), "")
    if action in getattr(view, "unrecorded", ()):
        return
    name = f"{view.__name__.removesuffix('View').removesuffix('ViewSet')} {action or request.method}"
    # A client may request any path: only the matched route parameters are recorded.
    keys = " ".join(f"{key} {value}" for key, value in match.kwargs.items() if key != "format")
    if response.status_code >= 400:
        audit_log.count_refused(f"API {name} {keys}".strip(), user=request.user, status=response.status_code)
        return
    row = _row(view, match.kwargs, response)
    audit_log.record(
        f"API {name}",
        who=request.user,
        rows=[row] if row else [],
        which="" if row else keys,
        outcome=f"answered {response.status_code}",
        flag={"create": ADDITION, "destroy": DELETION}.get(action, CHANGE),
    )


def _row(view: Any, kwargs: dict[str, Any], response: HttpResponse) -> audit_log.Row | None:
    model = getattr(getattr(view, "queryset", None), "model", None)
    data = getattr(response, "data", None)
    key = kwargs.get("pk") or (data.get("id") if isinstance(data, dict) else None)
    return audit_log.Row(model, int(key)) if model is not None and str(key or "").isdecimal() else None
