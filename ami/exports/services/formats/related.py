"""What belongs to the occurrences of a batch, read as plain values in one query each."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from ami.main.models import Occurrence

Grouped = dict[int, list[tuple[Any, ...]]]


def grouped(rows: "QuerySet[Any, tuple[Any, ...]]") -> Grouped:
    """Return tuples by their first value, each group in the order of the rows."""
    found: Grouped = defaultdict(list)
    for row in rows.iterator(chunk_size=2_000):
        found[row[0]].append(row)
    return found


def values(rows: "QuerySet[Any]", columns: Iterable[str], limit: int) -> list[tuple[Any, ...]]:
    """Return the first rows as tuples."""
    return list(rows.values_list(*columns)[:limit])


def of_rows(occurrences: "QuerySet[Occurrence]", rows: list[tuple[Any, ...]]) -> "QuerySet[Occurrence]":
    """Return the occurrences of a batch, for a subquery: up to the key of its last row."""
    return occurrences.order_by().filter(pk__lte=rows[-1][0]) if rows else occurrences.none()
