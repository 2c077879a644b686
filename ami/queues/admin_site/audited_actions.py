"""Records every action of the admin on the pages of the rows it was run on, and in the log."""

from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.admin.utils import model_format_dict
from django.contrib.messages import get_messages
from django.http import HttpRequest
from django.template.response import TemplateResponse

from ami.queues import audit_log


class AuditedActions:
    """A mixin of model admins; an action that answers with a confirmation page is not recorded yet."""

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions, each behind the record of it."""
        actions: dict[str, Any] = super().get_actions(request)  # type: ignore[misc]
        if getattr(self, "records_itself", False):
            return actions
        return {
            name: (function if records_itself(function) else _audited(function, text), name, text)
            for name, (function, _, text) in actions.items()
        }


def records_itself(action: Any) -> bool:
    """Whether an action is an operation, which writes its own entry."""
    return bool(getattr(action, "records_itself", False))


def _audited(action: Callable[..., Any], description: str) -> Callable[..., Any]:
    @wraps(action)
    def run(model_admin: Any, request: HttpRequest, queryset: Any) -> Any:
        rows = _rows(queryset)  # Before the action, which may delete or change them.
        shown_before = len(_messages(request))
        what = str(description) % model_format_dict(model_admin.opts)
        options: dict[str, Any] = {"who": request.user, "rows": rows}
        try:
            answer = action(model_admin, request, queryset)
        except Exception as error:
            audit_log.record(what, outcome=f"failed: {type(error).__name__}: {error}", **options)
            raise
        if not isinstance(answer, TemplateResponse):
            # Django itself writes the history of what `delete_selected` deleted.
            in_history = action.__name__ != "delete_selected"
            audit_log.record(
                what, outcome=_outcome(_messages(request)[shown_before:]), in_history=in_history, **options
            )
        return answer

    return run


def _rows(queryset: Any) -> list[Any]:
    rows = list(queryset[: audit_log.MOST_ENTRIES + 1])
    if len(rows) <= audit_log.MOST_ENTRIES:
        return rows
    return [audit_log.Row(queryset.model, key) for key in queryset.values_list("pk", flat=True)]


def _messages(request: HttpRequest) -> list[Any]:
    return list(getattr(get_messages(request), "_queued_messages", ()))


def _outcome(shown: list[Any]) -> str:
    """Return the action's message; of several messages the number of each kind."""
    if len(shown) == 1:
        return f"{shown[0].level_tag}: {shown[0].message}"
    counts = Counter(message.level_tag for message in shown)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "done"
