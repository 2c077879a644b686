"""Converts the scores and logits that an earlier version wrote as JSON to bytes, a few rows at a time."""

import logging
from typing import Any

from django.db import transaction
from django.db.models import Q

from ami.main.models import Classification
from ami.main.models.float_list import pack
from ami.queues import named_leases
from ami.queues.models import Lease
from ami.queues.slices import Slice

logger = logging.getLogger(__name__)

NAMES = ("scores", "logits")

#: Keys that are looked at in one statement, and rows converted in one transaction: a row may have 29,176 scores.
MOST_KEYS, MOST_ROWS = 5_000, 50

HAS_JSON = Q(scores_json__isnull=False) | Q(logits_json__isnull=False)


def convert(lease: str, holder: str, work: Slice) -> bool:
    """Convert rows in the order of their keys until the slice is over; return whether all are converted.

    The lease's row keeps the last key. Killed anywhere, the next holder continues at the last transaction; rows that
    were written meanwhile have bytes already. Raises nothing for a row that is no list of numbers: it stays as it is.
    """
    state = Lease.objects.get(name=lease).state
    if state.get("is_done"):
        return True
    after = state.get("after", 0)
    while True:
        keys = Classification.objects.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:MOST_KEYS]
        last = max(keys, default=None)
        if last is None:
            return named_leases.renew(lease, holder, state={"after": after, "is_done": True})
        found = Classification.objects.filter(HAS_JSON, pk__gt=after, pk__lte=last).order_by("pk")
        pks = list(found.values_list("pk", flat=True))
        for part in [pks[at : at + MOST_ROWS] for at in range(0, len(pks), MOST_ROWS)]:
            with transaction.atomic():
                _convert_rows(part)
                if not named_leases.renew(lease, holder, state={"after": part[-1]}):
                    transaction.set_rollback(True)
                    return False
            if work.over():
                return False
        after = last
        if not named_leases.renew(lease, holder, state={"after": after}) or work.over():
            return False


def _convert_rows(pks: list[int]) -> None:
    rows = Classification.objects.filter(pk__in=pks)
    # Saved again since: these have bytes, and what they had before is of no use.
    rows.filter(scores__isnull=False).update(scores_json=None, logits_json=None)
    for pk, *values in rows.filter(scores__isnull=True).values_list("pk", "scores_json", "logits_json"):
        packed = _packed(pk, values)
        if packed is not None:
            rows.filter(pk=pk, scores__isnull=True).update(**packed, scores_json=None, logits_json=None)


def _packed(pk: int, values: list[Any]) -> dict[str, bytes] | None:
    try:
        return {name: pack(value or []) for name, value in zip(NAMES, values, strict=True)}
    except (TypeError, OverflowError):
        logger.error("The scores of a classification are not numbers; they stay JSON.", extra={"classification": pk})
        return None
