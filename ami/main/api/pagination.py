"""Pages of a list: by a bounded offset, or after a cursor; the keys of a page first, then its rows."""

import base64
import json
from typing import Any

from django.core.exceptions import ValidationError as FieldError
from django.db import connections
from django.db.models import QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from ami.main.services import bounded_counts, keyset
from ami.main.services.bounded_counts import Number
from ami.main.services.keyset import Order, Position

MAX_PER_PAGE = 500
LARGEST_OFFSET = 10_000
LARGEST_KEY = 2**63 - 1
MAX_CURSOR = 4_096
CURSOR = "cursor"
PAGE_SIZE = "page_size"


class BoundedPagination(LimitOffsetPagination):
    """Pages of at most ``MAX_PER_PAGE`` rows, by an offset of at most ``LARGEST_OFFSET`` or by a cursor.

    ``?cursor=`` begins at the first row; ``next_cursor`` is the cursor of the next page. A view may give ``branches``:
    querysets that together have the keys of the list, each read by an index in ``order``; and
    ``counts_exactly``, where clients rely on the exact number.
    """

    default_limit = 50
    max_limit = MAX_PER_PAGE
    number: Number
    next_cursor: str | None

    def paginate_queryset(self, queryset: QuerySet[Any], request: Request, view: Any = None) -> list[Any]:
        """Return the rows of the page.

        Raises:
            ValidationError: the offset is too large, or the cursor is not one of this list.
        """
        self.request = request
        self.limit = self.get_limit(request)
        order = getattr(view, "order", None) or keyset.order_of(queryset)
        branches = getattr(view, "branches", None)
        branches = [queryset] if branches is None else branches
        text = request.query_params.get(CURSOR)
        self.by_cursor = text is not None and order is not None
        if text is not None and order is None:
            raise ValidationError({CURSOR: ["This list has no cursor; use offset."]})
        self.offset = 0 if self.by_cursor else self.get_offset(request)
        if order is None:
            self.number, self.next_cursor = Number(queryset.count()), None
            return list(queryset[self.offset : self.offset + self.limit])
        after = position_of(text, queryset, order) if text else None
        found = keyset.positions(branches, order, offset=self.offset, limit=self.limit + 1, after=after)
        if getattr(view, "counts_exactly", False):
            self.number = Number(queryset.order_by().count())
        else:
            self.number = self._number(queryset, branches, order, len(found))
        self.next_cursor = cursor_of(found[self.limit - 1]) if len(found) > self.limit else None
        return keyset.in_order(queryset, [key for _, key in found[: self.limit]])

    def _number(self, rows: QuerySet[Any], branches: list[QuerySet[Any]], order: Order, found: int) -> Number:
        whole = not self.by_cursor and found <= self.limit and (found or not self.offset)
        return Number(self.offset + found) if whole else bounded_counts.count(rows, branches, order)

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of rows of the list, or its estimate."""
        return self.number.rows

    def get_limit(self, request: Request) -> int:
        """Return the rows of a page: ``limit``, or ``page_size`` as some clients write it."""
        if self.limit_query_param in request.query_params or PAGE_SIZE not in request.query_params:
            return int(super().get_limit(request) or self.default_limit)
        try:
            return min(max(1, int(request.query_params[PAGE_SIZE][:18])), self.max_limit)
        except ValueError:
            return self.default_limit

    def get_offset(self, request: Request) -> int:
        """Return the offset.

        Raises:
            ValidationError: it is larger than ``LARGEST_OFFSET``.
        """
        offset = super().get_offset(request)
        if offset > LARGEST_OFFSET:
            raise ValidationError(
                {
                    "offset": [
                        f"Must be at most {LARGEST_OFFSET}; to read further, use cursor: start with ?cursor= and "
                        "follow next."
                    ]
                }
            )
        return offset

    def get_next_link(self) -> str | None:
        """Return the link to the next page: by offset as long as it may be that large, then by cursor."""
        url = self.request.build_absolute_uri()
        url = remove_query_param(replace_query_param(url, self.limit_query_param, self.limit), PAGE_SIZE)
        offset = self.offset + self.limit
        if self.next_cursor is not None and (self.by_cursor or offset > LARGEST_OFFSET):
            return replace_query_param(remove_query_param(url, self.offset_query_param), CURSOR, self.next_cursor)
        has_more = self.next_cursor is not None or (not self.by_cursor and offset < self.count)
        has_more = has_more and offset <= LARGEST_OFFSET and not self.by_cursor
        return replace_query_param(url, self.offset_query_param, offset) if has_more else None

    def get_previous_link(self) -> str | None:
        """Return the link to the page before; None in a list read by cursor, which goes forward only."""
        return None if self.by_cursor else super().get_previous_link()

    def get_paginated_response(self, data: Any) -> Response:
        """Return the page with its links and the number of rows."""
        return Response(
            {
                "count": self.count,
                "count_is_estimate": self.number.is_estimate,
                "next": self.get_next_link(),
                "previous": self.get_previous_link(),
                "next_cursor": self.next_cursor,
                "results": data,
            }
        )

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Describe the page for OpenAPI."""
        described: dict[str, Any] = super().get_paginated_response_schema(schema)
        described["required"] = [*described["required"], "count_is_estimate"]
        described["properties"]["count_is_estimate"] = {"type": "boolean", "description": "count is an estimate"}
        described["properties"]["next_cursor"] = {"type": ["string", "null"], "description": "for ?cursor="}
        return described

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Describe the parameters for OpenAPI."""
        cursor = {
            "name": CURSOR,
            "required": False,
            "in": "query",
            "description": "next_cursor of the page before; empty for the first page. Replaces offset.",
            "schema": {"type": "string"},
        }
        return [*super().get_schema_operation_parameters(view), cursor]


def cursor_of(position: Position) -> str:
    """Return the cursor of the rows after a position."""
    value, key = position
    written = value.isoformat() if hasattr(value, "isoformat") else value
    return base64.urlsafe_b64encode(json.dumps([written, key], separators=(",", ":")).encode()).decode().rstrip("=")


def position_of(cursor: str, rows: QuerySet[Any], order: Order) -> Position:
    """Return the position that a cursor names.

    Raises:
        ValidationError: it is not a cursor of this list.
    """
    try:
        if len(cursor) > MAX_CURSOR:
            raise ValueError("too long")
        value, key = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        if type(key) is not int or not 0 <= key <= LARGEST_KEY:
            raise ValueError("no key")
        return _value(value, rows, order), key
    except (ValueError, TypeError, OverflowError, RecursionError, FieldError) as error:
        raise ValidationError({CURSOR: ["Not a cursor of this list; begin with an empty one."]}) from error


def _value(value: Any, rows: QuerySet[Any], order: Order) -> Any:
    """Return the value of the ordering column as the database compares it."""
    if value is None or order.column is None:
        if value is not None:
            raise ValueError("no value")
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\x00" in str(value):
        raise ValueError("not a value of a column")
    field = rows.model._meta.get_field(order.column)
    read = field.to_python(value)
    # PostgreSQL refuses some values that Python reads, such as a surrogate.
    str(read).encode()
    field.get_db_prep_value(read, connections[rows.db])
    return read
