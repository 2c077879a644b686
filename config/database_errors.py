"""Says in one sentence why the database cannot be used: it does not answer, or it lacks migrations."""

import os
from pathlib import Path
from typing import Any

from ami.queues.connection_reasons import Unusable, reason
from config.waiting import migrations

CORRECT = "correct DATABASE_URL"


def unusable() -> str:
    """Return a sentence with where the database is, why it cannot be used, and the remedy; empty if it can be used.

    The database is asked again. The words of the first error would not do: SQLite's and PostgreSQL's differ, and a
    wrong query fails like a missing table.
    """
    return unreachable() or unmigrated()


def unreachable() -> str:
    """Return why no connection can be opened, or nothing."""
    connection = _connection()
    connection.close()
    try:
        connection.ensure_connection()
    except Exception as error:  # Each driver raises its own, also while Django sets the connection up.
        why, remedy = _sqlite_reason(connection, error) or (reason(error), f"start the database or {CORRECT}")
        return f"{_place(connection)} cannot be used: {why}; {remedy}."
    return ""


def unmigrated() -> str:
    """Return which migrations are missing, or nothing. Raises what the driver raises."""
    try:
        migrations.refuse_missing()
    except Unusable as missing:
        return f"{_place(_connection())} lacks migrations: {missing}."
    return ""


def _connection() -> Any:
    from django.db import DEFAULT_DB_ALIAS, connections

    return connections[DEFAULT_DB_ALIAS]


def _place(connection: Any) -> str:
    place = migrations.place(connection.settings_dict)
    return place[0].upper() + place[1:]


def _sqlite_reason(connection: Any, error: Exception) -> tuple[str, str] | None:
    """Return why SQLite cannot open its file, and the remedy: its own words are nearly always the same."""
    if connection.vendor != "sqlite":
        return None
    file = Path(connection.settings_dict["NAME"])
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}", f"create it or {CORRECT}"
    if file.is_dir():
        return "it is a folder", "name a file in it in DATABASE_URL"
    if "not a database" in str(error):
        return "the file is not an SQLite database", CORRECT
    for path in (file, file.parent):
        if path.exists() and not os.access(path, os.W_OK):
            return f"this user may not write to {path}", f"change its owner or {CORRECT}"
    return str(error), f"let this user write to the file and to its folder, or {CORRECT}"
