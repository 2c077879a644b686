"""The page of the audit log: who did what to what, the newest first, filtered by the address."""

from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import BadRequest
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.http import require_GET

from ami.console import list_page
from ami.queues.models import AuditEntry
from ami.queues.refusals import Refused
from ami.queues.wishes import moment

COLUMNS = ("at", "who", "verb", "target", "before", "after", "why", "source", "outcome")
LONGEST_FILTER = 255
VERBS_SHOWN = 100


@dataclass(frozen=True)
class AuditFilter:
    """Parts of who and target, a whole verb, and the times between which it was."""

    who: str = ""
    verb: str = ""
    target: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, given: QueryDict) -> "AuditFilter":
        """Return what an address asks for.

        Raises:
            BadRequest: a time is none, or a value is too long.
        """
        values = {name: given.get(name, "").strip() for name in ("who", "verb", "target")}
        if any(len(value) > LONGEST_FILTER or "\0" in value for value in values.values()):
            raise BadRequest(f"A filter has at most {LONGEST_FILTER} characters.")
        return cls(**values, since=_moment(given.get("from", "")), until=_moment(given.get("to", "")))

    def rows(self) -> "QuerySet[AuditEntry]":
        given = {
            "who__icontains": self.who,
            "verb": self.verb,
            "target__icontains": self.target,
            "at__gte": self.since,
            "at__lt": self.until,
        }
        return AuditEntry.objects.filter(**{name: value for name, value in given.items() if value}).order_by(
            "-at", "-pk"
        )


@require_GET
def show(request: HttpRequest) -> HttpResponse:
    """List what operators did."""
    list_page.require(request, "queues.view_auditentry")
    wanted = AuditFilter.of(request.GET)
    rows = wanted.rows()
    if data := list_page.as_data(request, "audit", COLUMNS, lambda: rows.values(*COLUMNS)[: list_page.MOST_ROWS]):
        return data
    verbs = AuditEntry.objects.order_by("verb").values_list("verb", flat=True).distinct()[:VERBS_SHOWN]
    context = {
        "rows": list_page.one_page(request, rows),
        "wanted": wanted,
        "given_from": request.GET.get("from", ""),
        "given_to": request.GET.get("to", ""),
        "verbs": list(verbs),
    }
    return list_page.page(request, "audit", "Audit log", "audit", context)


def _moment(text: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        return moment(text.strip())
    except Refused as error:
        raise BadRequest(str(error)) from None
