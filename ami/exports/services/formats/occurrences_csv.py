"""The format `occurrences_simple_csv`: one line per occurrence."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import QuerySet

from ami.exports.services.formats.registry import register
from ami.exports.services.formats.row import COLUMNS, record, with_related
from ami.main.models import Occurrence

#: A spreadsheet runs a cell with such a beginning as a formula (OWASP, "CSV Injection"): also in full-width
#: characters, and after characters that an import strips.
FORMULA = re.compile(r"[\s\x00\ufeff\u200b]*[=+\-@\uff1d\uff0b\uff0d\uff20]| *[\t\r\n]")


def safe(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: such a text is prefixed with ``'``.

    Numbers stay numbers, also negative ones. Programs that read the file strip one leading ``'``.
    """
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    if isinstance(value, str) and FORMULA.match(value):
        return f"'{value}"
    return value


class OccurrencesCsv:
    """UTF-8 with a header line; unknown values are empty cells."""

    key = "occurrences_simple_csv"
    name = "Occurrences (CSV)"
    extension = "csv"
    content_type = "text/csv; charset=utf-8"
    between = b""

    def head(self) -> bytes:
        return _lines([COLUMNS])

    def tail(self) -> bytes:
        return b""

    def prepare(self, occurrences: "QuerySet[Occurrence]") -> "QuerySet[Occurrence]":
        return with_related(occurrences)

    def rows(self, occurrences: Sequence[Occurrence]) -> bytes:
        """Return one line per occurrence."""
        records = (record(occurrence) for occurrence in occurrences)
        return _lines([safe(fields[column]) for column in COLUMNS] for fields in records)


def _lines(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


register(OccurrencesCsv())
