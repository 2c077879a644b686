"""Prints the result of a command: a table, or JSON."""

import json
from collections.abc import Iterable
from typing import IO, Any


def write(out: IO[str], data: Any, rows: Iterable[Iterable[Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    """Print ``data`` as JSON, or else ``rows`` below ``columns``; None is shown as ``-``."""
    if as_json:
        out.write(json.dumps(data) + "\n")
        return
    from rich.console import Console  # JSON needs none of it.
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        # Text of messages is no markup.
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    Console(file=out, width=None if out.isatty() else 240).print(table)
