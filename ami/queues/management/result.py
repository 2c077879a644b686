"""What a sub-command returns for ``manage.py queues`` to print."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """What is printed: ``data`` as JSON, or a table of ``cells``; then ``closing``. ``code`` is the exit code."""

    data: Any
    cells: list[tuple[Any, ...]]
    columns: tuple[str, ...]
    closing: str = ""
    code: int = 0
