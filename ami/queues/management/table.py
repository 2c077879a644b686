"""Prints rows as a table for people."""

from collections.abc import Iterable, Sequence
from typing import IO, Any


def show(out: IO[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print the rows; 240 columns wide where ``out`` is no terminal."""
    from rich.console import Console  # JSON needs none of it.
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        # Text of messages and findings is no markup.
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    Console(file=out, width=None if out.isatty() else 240).print(table)
