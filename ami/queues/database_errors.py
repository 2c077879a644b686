"""Says in one sentence where the database is, why it cannot be used, and what helps."""

import os
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from ami.celery.database_away import UNMIGRATED, state_of
from ami.queues.connection_reasons import (
    FULL,
    LOGIN,
    MISSING,
    READ_ONLY,
    SLOW,
    STARTING,
    UNKNOWN,
    database_place,
    reason,
)

CORRECT = "correct DATABASE_URL"
#: By what `reason` says.
REMEDIES = {
    LOGIN: "correct the user and the password in DATABASE_URL",
    UNKNOWN: "correct the host in DATABASE_URL, or see whether its name is served",
    MISSING: f"create it or {CORRECT}",
    FULL: "raise max_connections, or run fewer processes",
    STARTING: "wait, and see its log if that lasts",
    READ_ONLY: "let DATABASE_URL lead to the primary",
    SLOW: "see what blocks it in pg_stat_activity",
}


def sentence(error: BaseException) -> str:
    """Return why the database cannot be used, without a password; ``error`` is what Django or the driver raised."""
    return f"{where(connections[DEFAULT_DB_ALIAS])} cannot be used: {why(error)}"


def why(error: BaseException) -> str:
    """Return the reason and the remedy, for the end of a sentence."""
    if state_of(error) in UNMIGRATED or str(error).startswith(("no such table", "no such column")):
        return "it lacks a table or a column; 'python manage.py migrate' adds it."
    if found := _sqlite_reason(connections[DEFAULT_DB_ALIAS], error):
        return f"{found[0]}; {found[1]}."
    words = reason(error)
    return f"{words}; {REMEDIES.get(words, f'start the database or {CORRECT}')}."


def where(connection: Any) -> str:
    """Return where the database of a connection is, for the beginning of a sentence."""
    found = database_place(connection.settings_dict)
    return found[0].upper() + found[1:]


def _sqlite_reason(connection: Any, error: BaseException) -> tuple[str, str] | None:
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
    if "locked" in str(error):
        return "another process has locked it", "end that process, or use PostgreSQL"
    for path in (file, file.parent):
        if path.exists() and not os.access(path, os.W_OK):
            return f"this user may not write to {path}", f"change its owner or {CORRECT}"
    return str(error), f"let this user write to the file and to its folder, or {CORRECT}"
