"""What a process of the torture did: lines in a file that only it appends to.

A line is one ``write``: a killed process leaves it whole or not at all, because the system keeps what was written.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path


class Diary:
    """Appends lines of words; a successor of a killed process goes on in the same file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._fd, f"{' '.join(map(str, words))}\n".encode())


def new_token() -> str:
    """Return the id of one publish: a second try is a publish of its own."""
    return uuid.uuid4().hex


def read(path: Path) -> Iterator[list[str]]:
    """Yield the words of each line."""
    if path.exists():
        for line in path.read_text().splitlines():
            yield line.split()
