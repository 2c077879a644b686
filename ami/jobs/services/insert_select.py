"""Inserts rows that the database makes from a query by itself: ``INSERT ... SELECT``, which Django has no call for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connections, models, router
from django.db.models import Value
from django.db.models.constants import OnConflict

#: Before the names of what is selected, which may not be those of the source's own fields.
_PREFIX = "new_"


def insert_select(model: type[models.Model], source: models.QuerySet[Any], **values: Any) -> int:
    """Insert a row of ``model`` for each row of ``source`` and return their number; existing rows are left alone.

    ``values`` are the new rows' fields by attribute name (``job_id``): expressions over ``source``, or constants. Other
    fields get their defaults, as in ``save()``.
    """
    connection = connections[router.db_for_write(model)]
    columns, expressions = [], {}
    for field in model._meta.concrete_fields:
        if (value := _value(field, values)) is not None:
            columns.append(connection.ops.quote_name(field.column))
            expressions[f"{_PREFIX}{field.attname}"] = value
    selected = source.order_by().annotate(**expressions).values_list(*expressions)
    try:
        select, parameters = selected.query.get_compiler(connection=connection).as_sql()
    except EmptyResultSet:
        return 0
    ops, table = connection.ops, connection.ops.quote_name(model._meta.db_table)
    insert = f"{ops.insert_statement(OnConflict.IGNORE)} {table} ({', '.join(columns)})"
    unless_exists = ops.on_conflict_suffix_sql([], OnConflict.IGNORE, [], [])
    with connection.cursor() as cursor:
        cursor.execute(f"{insert} {select} {unless_exists}", parameters)
        return int(cursor.rowcount)


def _value(field: models.Field[Any, Any], values: Mapping[str, Any]) -> Any:
    """Return the expression of a field; None where the database fills it in."""
    if field.attname in values:
        given = values[field.attname]
        return given if hasattr(given, "resolve_expression") else Value(given, output_field=_plain(field))
    if field.primary_key or field.has_db_default() or (field.null and not field.has_default()):
        return None
    return Value(field.get_default(), output_field=_plain(field))


def _plain(field: models.Field[Any, Any]) -> models.Field[Any, Any]:
    """Return the field that prepares a value: that of the key for a foreign key."""
    return field.target_field if isinstance(field, models.ForeignKey) else field
