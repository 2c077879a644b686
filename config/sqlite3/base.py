"""Creates the database file, and keeps it, readable by its owner alone."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db.backends.sqlite3 import base

MODE = 0o600


class DatabaseWrapper(base.DatabaseWrapper):
    """As Django's, but for the mode of the file."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Connect to the file, once only its owner can read it."""
        if not (self.is_in_memory_db() or str(conn_params["database"]).startswith("file:")):
            keep_private(Path(conn_params["database"]))
        return super().get_new_connection(conn_params)


def keep_private(path: Path) -> None:
    """Create a missing database, and remove every permission but the owner's.

    SQLite gives ``-wal`` and ``-shm`` the mode of the database; those that are there already are changed here. An
    existing file is never opened: closing it would drop the locks that this process holds on it (SQLite, "How To
    Corrupt An SQLite Database File", 2.2). What cannot be done here, SQLite reports better.
    """
    with suppress(OSError):
        if not path.exists():
            _create(path)
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            with suppress(FileNotFoundError):
                if file.stat().st_mode & 0o077:
                    file.chmod(MODE)


def _create(path: Path) -> None:
    """Create the file whole with its mode, also when another process does so at this moment."""
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    try:
        os.link(made, path)
    finally:
        os.unlink(made)
