"""The registry of export formats."""

from collections.abc import Sequence
from typing import Protocol

from django.db.models import QuerySet

from ami.main.models import Occurrence
from ami.topology.errors import did_you_mean


class Format(Protocol):
    """How occurrences become bytes: ``head``, pieces joined by ``between``, ``tail``; no rows make a valid file too."""

    key: str
    name: str
    extension: str
    content_type: str
    between: bytes

    def head(self) -> bytes:
        """Return what stands before the first row."""
        ...

    def tail(self) -> bytes:
        """Return what stands after the last row."""
        ...

    def prepare(self, occurrences: "QuerySet[Occurrence]") -> "QuerySet[Occurrence]":
        """Load all that a batch of rows needs in a fixed number of queries."""
        ...

    def rows(self, occurrences: Sequence[Occurrence]) -> bytes:
        """Return a batch of at least one row, without ``between`` at either end."""
        ...


_formats: dict[str, Format] = {}


def register(written: Format) -> Format:
    """Make a format available under its key."""
    _formats[written.key] = written
    return written


def format_of(key: str) -> Format:
    """Return the registered format.

    Raises:
        ValueError: with the known ones named.
    """
    if key not in _formats:
        raise ValueError(f"Unknown format '{key}'.{did_you_mean(key, _formats)} Known: {', '.join(sorted(_formats))}.")
    return _formats[key]


def choices() -> list[tuple[str, str]]:
    """Return (key, name) of every format, sorted by key."""
    return [(key, _formats[key].name) for key in sorted(_formats)]
