"""What a sub-command returns for ``manage.py queues`` to print."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """What is printed: ``data`` as JSON, or a table of ``cells``; then ``closing``. ``code`` is the exit code."""

    data: Any
    cells: list[tuple[Any, ...]]
    columns: tuple[str, ...]
    closing: str = ""
    code: int = 0


def listed(
    rows: Sequence[Any],
    shown: Sequence[str | Callable[[Any], Any]],
    columns: tuple[str, ...],
    data: Any = None,
    closing: str = "",
    code: int = 0,
) -> Result:
    """Return a line for each row; ``data`` is what the rows hold, dataclasses then, unless it is given.

    A cell is a function of the row or an attribute: ``seconds:.1f`` with a format, ``why?`` without what is empty.
    """
    cells = [tuple(each(row) if callable(each) else _cell(row, each) for each in shown) for row in rows]
    return Result([asdict(row) for row in rows] if data is None else data, cells, columns, closing, code)


def _cell(row: Any, shown: str) -> Any:
    name, _, form = shown.partition(":")
    value = getattr(row, name.rstrip("?"))
    return format(value, form) if form else value or (None if name.endswith("?") else value)
