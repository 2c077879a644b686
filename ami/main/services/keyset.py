"""The order of a list by one column and the primary key, and the keys of one page of it.

A page's keys come from an index alone; its rows are then fetched by key. A list over several projects is read as one
ordered index scan per project, merged, so that no page sorts or skips the rows of other projects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import connections
from django.db.models import Field, Q, QuerySet

Position = tuple[Any, int]
"""The ordering column's value and the primary key of a row; the value is None where the order is by key alone."""


@dataclass(frozen=True)
class Order:
    """The order of a list: by ``column`` (None: by key alone), then by ``key``, which may be another table's key."""

    column: str | None
    descending: bool = False
    key_descending: bool = False
    key: str = "pk"

    @property
    def names(self) -> list[str]:
        """The arguments of ``order_by``."""
        key = f"-{self.key}" if self.key_descending else self.key
        return [key] if self.column is None else [f"-{self.column}" if self.descending else self.column, key]


def order_of(rows: QuerySet[Any]) -> Order | None:
    """Return the order of a queryset; None for one that is not by a column of its table and the primary key."""
    names = list(rows.query.order_by or (rows.model._meta.ordering if rows.query.default_ordering else []))
    if not all(isinstance(name, str) for name in names):
        return None
    key = rows.model._meta.pk.name
    keys = [index for index, name in enumerate(names) if name.lstrip("-") in ("pk", key)]
    if keys:
        names = names[: keys[0] + 1]
    else:
        names.append("pk")
    if len(names) > 2 or (len(names) == 2 and not _is_column(rows, names[0].lstrip("-"))):
        return None
    column = names[0] if len(names) == 2 else None
    return Order(
        column=column.lstrip("-") if column else None,
        descending=bool(column) and str(column).startswith("-"),
        key_descending=names[-1].startswith("-"),
    )


def _is_column(rows: QuerySet[Any], name: str) -> bool:
    try:
        field = rows.model._meta.get_field(name)
    except FieldDoesNotExist:
        return False
    return isinstance(field, Field) and not field.is_relation


def positions(
    branches: Sequence[QuerySet[Any]], order: Order, *, offset: int = 0, limit: int, after: Position | None = None
) -> list[Position]:
    """Return up to ``limit`` positions of the rows of ``branches``, which share no row: those after ``offset`` rows,
    or after the row at ``after``.
    """
    if not branches:
        return []
    found: list[Position] = []
    for condition in [Q()] if after is None else _conditions_after(branches[0], order, after):
        ranges = [branch.filter(condition) for branch in branches]
        part = merged(ranges, order, offset + limit - len(found))[offset:]
        found += [(None, pk) for pk in part] if order.column is None else list(part)
        if len(found) >= limit:
            break
    return found


def merged(branches: Sequence[QuerySet[Any]], order: Order, most: int) -> QuerySet[Any]:
    """Return the first ``most`` keys of all branches in order, as values: pairs of column and key, or keys alone.

    PostgreSQL merges the ordered branches row by row (Merge Append) because each is ordered and limited itself.
    """
    values = [_values(branch, order).order_by(*order.names)[:most] for branch in branches]
    first, *others = values
    return first.union(*others, all=True).order_by(*order.names)[:most] if others else first


def _values(rows: QuerySet[Any], order: Order) -> QuerySet[Any]:
    rows = rows.select_related(None).prefetch_related(None)
    return rows.values_list(order.key, flat=True) if order.column is None else rows.values_list(order.column, order.key)


def _conditions_after(rows: QuerySet[Any], order: Order, after: Position) -> list[Q]:
    """Return conditions, each one range of the index, for the rows after a position; in order.

    A single condition over both columns would read every row with the same value again.
    """
    value, key = after
    beyond_key = Q(**{f"{order.key}__{'lt' if order.key_descending else 'gt'}": key})
    if order.column is None:
        return [beyond_key]
    is_null = Q(**{f"{order.column}__isnull": True})
    nulls_first = (connections[rows.db].vendor == "postgresql") == order.descending
    if value is None:
        return [is_null & beyond_key, ~is_null] if nulls_first else [is_null & beyond_key]
    beyond = Q(**{f"{order.column}__{'lt' if order.descending else 'gt'}": value})
    same = Q(**{order.column: value}) & beyond_key
    has_nulls = rows.model._meta.get_field(order.column).null
    return [same, beyond, is_null] if has_nulls and not nulls_first else [same, beyond]


def in_order(rows: QuerySet[Any], keys: Sequence[int]) -> list[Any]:
    """Return the rows with these keys in the order of the keys; rows deleted since are left out."""
    by_key = {row.pk: row for row in rows.order_by().filter(pk__in=keys)}
    return [by_key[key] for key in keys if key in by_key]
