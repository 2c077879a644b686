"""Moves waiting calls to another queue."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Max
from kombu.utils import json

from ami.admission.models import Call

#: Rows in one statement.
BATCH = 1000


def move(
    source: str,
    destination: str,
    *,
    task: str = "",
    headers: Mapping[str, str],
    limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Let calls of a queue that wait as rows wait for another one, oldest first; return how many.

    What was sent goes on, as what is called meanwhile does. ``progress`` receives how many were moved so far.
    """
    waiting = Call.objects.filter(queue=source, run=None)
    waiting = waiting.filter(task=task) if task else waiting
    last, seen, moved = waiting.aggregate(last=Max("pk"))["last"] or 0, 0, 0
    while limit is None or moved < limit:
        rows = waiting.filter(pk__gt=seen, pk__lte=last).order_by("pk").values_list("pk", "options")[:BATCH]
        if not (found := list(rows)):
            break
        seen = found[-1][0]
        fitting = [pk for pk, options in found if _fits(options, headers)]
        fitting = fitting if limit is None else fitting[: limit - moved]
        moved += waiting.filter(pk__in=fitting).update(queue=destination)
        progress(moved)
    return moved


def have(given: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Whether the headers of a call or a message have these values, as texts."""
    return all(str(given.get(name)) == value for name, value in wanted.items())


def _fits(options: str, headers: Mapping[str, str]) -> bool:
    return not headers or have(json.loads(options).get("headers") or {}, headers)
