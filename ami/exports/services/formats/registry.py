"""The registry of export formats."""

from typing import NamedTuple, Protocol

from django.db.models import QuerySet

from ami.environment.errors import did_you_mean
from ami.main.models import Occurrence


class Batch(NamedTuple):
    """Some rows, without ``between`` at either end; ``last_pk`` is the key of the last occurrence, 0 without rows."""

    content: bytes
    rows: int
    last_pk: int


class Format(Protocol):
    """A file format: ``head``, rows joined by ``between``, ``tail``; a file without rows is valid, too."""

    key: str
    name: str
    extension: str
    content_type: str
    between: bytes

    def head(self) -> bytes:
        """Return the bytes before the first row."""
        ...

    def tail(self) -> bytes:
        """Return the bytes after the last row."""
        ...

    def batch(self, occurrences: "QuerySet[Occurrence]", limit: int) -> Batch:
        """Return the first rows, in a fixed number of queries."""
        ...


_formats: dict[str, Format] = {}


def register(written: Format) -> Format:
    _formats[written.key] = written
    return written


def format_of(key: str) -> Format:
    """Return the registered format.

    Raises:
        ValueError: unknown format.
    """
    if key not in _formats:
        raise ValueError(f"Unknown format '{key}'.{did_you_mean(key, _formats)} Known: {', '.join(sorted(_formats))}.")
    return _formats[key]


def choices() -> list[tuple[str, str]]:
    """Return (key, name) of every format, sorted by key."""
    return [(key, _formats[key].name) for key in sorted(_formats)]
