"""The number of rows of a list: exact up to ``EXACT_UP_TO``, above it PostgreSQL's estimate."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from ami.main.services.keyset import Order, merged

EXACT_UP_TO = 10_000


@dataclass(frozen=True)
class Number:
    """A number of rows, and whether it is an estimate."""

    rows: int
    is_estimate: bool = False


def count(rows: QuerySet[Any], branches: Sequence[QuerySet[Any]], order: Order | None) -> Number:
    """Count ``rows``, which are those of ``branches``; at most ``EXACT_UP_TO`` + 1 are read in ``order``.

    SQLite has no estimate and counts exactly.
    """
    if not branches:
        return Number(0)
    if connections[rows.db].vendor != "postgresql":
        return Number(rows.order_by().count())
    most = EXACT_UP_TO + 1
    exact = (merged(branches, order, most) if order else rows.order_by().values("pk")[:most]).count()
    return Number(exact) if exact <= EXACT_UP_TO else Number(max(estimate(rows), exact), is_estimate=True)


def estimate(rows: QuerySet[Any]) -> int:
    """Return the number of rows that PostgreSQL's planner expects."""
    plan = rows.order_by().select_related(None).values("pk").explain(format="json")
    return int(json.loads(plan)[0]["Plan"]["Plan Rows"])
