"""The format `occurrences_simple_csv`: one line per occurrence."""

import csv
import io
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from django.db.models import QuerySet

from ami.exports.services.formats.registry import Batch, register
from ami.exports.services.formats.row import COLUMNS, records
from ami.main.models import Occurrence

#: A spreadsheet runs a cell with such a beginning as a formula (OWASP, "CSV Injection"): also in full-width
#: characters, and after characters that an import strips.
FORMULA = re.compile(r"[\s\x00\ufeff\u200b]*[=+\-@\uff1d\uff0b\uff0d\uff20]| *[\t\r\n]")


@lru_cache(4096)
def safe(text: str) -> str:
    """Return a text that no spreadsheet runs as a formula: one that would be run is prefixed with ``'``.

    Programs that read the file strip one leading ``'``. Numbers stay numbers, also negative ones.
    """
    return f"'{text}" if FORMULA.match(text) else text


#: Columns that may begin like a formula; the others are numbers, times and fixed words.
TEXTS = tuple(
    COLUMNS.index(name)
    for name in (
        "deployment_name",
        "project_name",
        "determination_name",
        "best_machine_prediction_name",
        "best_machine_prediction_algorithm",
        "verified_by",
        "agreed_with_algorithm",
        "agreed_with_user",
        "best_detection_url",
        "best_detection_capture_url",
    )
)
BOX = COLUMNS.index("best_detection_bbox")


def cells(row: list[Any]) -> list[Any]:
    """Change a record to its cells, in place."""
    for index in TEXTS:
        if row[index] is not None:
            row[index] = safe(row[index])
    row[BOX] = json.dumps(row[BOX])
    return row


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

    def batch(self, occurrences: "QuerySet[Occurrence]", limit: int) -> Batch:
        """Return one line per occurrence."""
        rows = records(occurrences, limit)
        return Batch(_lines(map(cells, rows)), len(rows), rows[-1][0] if rows else 0)


def _lines(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


register(OccurrencesCsv())
