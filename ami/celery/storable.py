"""Bounds what a message brings to what a column of PostgreSQL and of SQLite takes."""

from typing import Any

#: The largest value of an integer column.
MOST_COUNT = 2**31 - 1
LONGEST = 255


def text(value: Any, longest: int | None = LONGEST) -> str:
    """Return a value as text without NUL and without halves of surrogate pairs, at most so long."""
    return str(value)[:longest].replace("\0", "?").encode("utf-8", "replace").decode()


def count(value: Any, most: int = MOST_COUNT) -> int:
    """Return a number as a whole one from 0 to ``most``; of what is no number 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return 0
    return int(min(max(value, 0), most))
