"""Keeps the last known wishes in the worker's state folder: they hold over a restart while the database is away."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ami.celery.worker_records import Wish

NAME = "wishes.json"
#: A file beyond this was not written here.
MOST_BYTES = 1024 * 1024


class WishFile:
    """The wishes in ``folder``, which only this user may write; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder else None
        self._written = ""

    def write(self, wishes: Sequence[Wish]) -> None:
        """Replace the wishes if they have changed.

        Raises:
            OSError: the file cannot be written.
        """
        text = json.dumps([asdict(wish) for wish in wishes])
        if self._path is None or text == self._written:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(dir=self._path.parent, prefix=f".{NAME}-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(made, self._path)
        self._written = text

    def read(self) -> tuple[Wish, ...]:
        """Return what was written last; nothing where that cannot be read."""
        if self._path is None:
            return ()
        try:
            if self._path.stat().st_size > MOST_BYTES or self._path.stat().st_uid != os.getuid():
                return ()
            return tuple(Wish(**item) for item in json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return ()
