"""What is done to the rows of calls in several places."""

from collections import Counter
from collections.abc import Iterable

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from kombu.utils import json

from ami.admission import outcomes
from ami.admission.models import Call
from ami.celery import origin, tick_claims
from ami.topology.router import ORIGIN_HEADER


def is_due() -> Q:
    return Q(not_before=None) | Q(not_before__lte=Now())


def has_call(field: str) -> Exists:
    """Return the condition that the row of another model names in ``field`` the id of a call that waits or runs."""
    return Exists(Call.objects.filter(task_id=OuterRef(field)))


def delete(calls: "QuerySet[Call]", why: str = "") -> int:
    """Delete calls; a tick of beat's among them has ended. ``why`` is counted (`ami.admission.models.Outcome`)."""
    rows = list(calls.values_list("pk", "task_id", "options", "task"))
    deleted: int = Call.objects.filter(pk__in=[row[0] for row in rows]).delete()[0] if rows else 0
    ended(task_id for _, task_id, options, _ in rows if is_tick(options))
    if why:
        for task, count in sorted(Counter(row[3] for row in rows).items()):
            outcomes.count(task, why, count)
    return deleted


def is_tick(options: str) -> bool:
    """Whether beat has sent a call with these options."""
    headers = json.loads(options).get("headers") or {} if f'"{origin.BEAT}"' in options else {}
    return bool(headers.get(ORIGIN_HEADER) == origin.BEAT)


def ended(ticks: Iterable[str]) -> None:
    found, claims = list(ticks), tick_claims.connected()
    if found and claims is not None:
        claims.ended(found)
