"""Writes rows together, and one by one where the database refuses one of them.

A database that is away takes none: all are written later. A row that is refused as data is refused for ever: written
together with others, it would hold them up.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ami.celery.database_away import is_away

T = TypeVar("T")


def write(
    rows: Sequence[T], together: Callable[[Sequence[T]], object], refused: Callable[[T, Exception], None]
) -> None:
    """Write rows with ``together``; where that refuses them, in halves, and call ``refused`` with each refused one.

    Raises:
        django.db.Error: the database is away; none, some or all rows were written.
    """
    if not rows:
        return
    try:
        together(rows)
    except Exception as error:  # Also what a driver raises for a value that it cannot send.
        if is_away(error):
            raise
        if len(rows) == 1:
            refused(rows[0], error)
            return
        half = len(rows) // 2
        write(rows[:half], together, refused)
        write(rows[half:], together, refused)
