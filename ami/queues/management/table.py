"""Prints the result of a command: a table, or JSON."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import IO, Any

from ami.celery.shown_time import shown_time


def write(out: IO[str], data: Any, rows: Iterable[Iterable[Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    """Print ``data`` as JSON, or else ``rows`` below ``columns``; None is ``-``, a time in JSON ISO 8601."""
    if as_json:
        out.write(json.dumps(data, default=datetime.isoformat) + "\n")
        return
    from rich.console import Console  # JSON needs none of it.
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        # Text of messages is no markup.
        table.add_row(*(Text(_text(cell)) for cell in row))
    Console(file=out, width=None if out.isatty() else 240).print(table)


def _text(cell: Any) -> str:
    if isinstance(cell, (list, tuple)):
        return ", ".join(map(str, cell))
    return shown_time(cell) if isinstance(cell, datetime) else "-" if cell is None else str(cell)
