"""A table as it is shown, and the same as CSV or JSON."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse, JsonResponse

from ami.console import quantities
from ami.exports.services.formats.occurrences_csv import safe

Row = Mapping[str, Any]

#: How the values of a column are shown, by its kind. A ``time`` is epoch seconds.
SHOWN: dict[str, Callable[[Any], str]] = {
    "text": lambda value: "" if value is None else str(value),
    "number": quantities.number,
    "seconds": quantities.duration,
    "bytes": quantities.size,
}


@dataclass(frozen=True)
class Column:
    """One column: the key of its values, its heading, and what they are: text, number, seconds, bytes or time.

    ``link`` returns the address that a row's cell leads to, empty for none.
    """

    name: str
    label: str
    kind: str = "text"
    link: Callable[[Row], str] | None = None


@dataclass(frozen=True)
class Cell:
    """What is shown of one value."""

    column: Column
    value: Any
    text: str
    href: str


@dataclass(frozen=True)
class Table:
    """Rows under columns. ``empty`` says what it means that there is none, and what to do.

    ``needs`` is the permission without which the table is not sent; empty for none.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row] = ()
    empty: str = "Nothing to show."
    caption: str = ""
    needs: str = ""

    def shown(self) -> Iterator[list[Cell]]:
        """Yield the cells of each row."""
        for row in self.rows:
            yield [_cell(column, row) for column in self.columns]


def _cell(column: Column, row: Row) -> Cell:
    value = row.get(column.name)
    text = SHOWN[column.kind](value) if column.kind in SHOWN else ""
    return Cell(column, value, text, column.link(row) if column.link else "")


def exported(table: Table, kind: str, at: float) -> HttpResponse:
    """Return a table as ``csv`` or ``json``: raw values, times as ISO 8601 in UTC."""
    rows = raw_rows(table)
    disposition = {"Content-Disposition": f'attachment; filename="{table.name}.{kind}"'}
    if kind == "json":
        return JsonResponse({"at": quantities.iso(at), table.name: rows}, headers=disposition)
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(column.name for column in table.columns)
    lines.writerows([_spreadsheet(value) for value in row.values()] for row in rows)
    return HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8", headers=disposition)


def raw_rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows as JSON takes them: raw values, times as ISO 8601 in UTC."""
    return [{column.name: _raw(column, row.get(column.name)) for column in table.columns} for row in table.rows]


def _raw(column: Column, value: Any) -> Any:
    if column.kind == "time" and value is not None:
        return quantities.iso(value)
    return list(value) if isinstance(value, tuple) else value


def _spreadsheet(value: Any) -> Any:
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return safe(value) if isinstance(value, str) else value
