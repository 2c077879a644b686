"""Says in one sentence why the database cannot be used: it does not answer, or it lacks migrations."""

from ami.celery.database_away import UNMIGRATED, is_away, state_of
from ami.queues import database_errors
from ami.queues.connection_reasons import Unusable
from config.waiting import migrations


def unusable() -> str:
    """Return a sentence with where the database is, why it cannot be used, and the remedy; empty if it can be used.

    The database is asked again. The words of the first error would not do: SQLite's and PostgreSQL's differ, and a
    wrong query fails like a missing table.
    """
    return unreachable() or unmigrated()


def failed(error: BaseException) -> str:
    """Return the same for a command that failed with ``error``; also where the database answers again."""
    if found := unusable():
        return found
    is_of_the_code = state_of(error) in UNMIGRATED or str(error).startswith("no such ")  # SQLite has no codes.
    return database_errors.sentence(error) if is_away(error) and not is_of_the_code else ""


def unreachable() -> str:
    """Return why no connection can be opened, or nothing."""
    from django.db import DEFAULT_DB_ALIAS, connections

    connection = connections[DEFAULT_DB_ALIAS]
    connection.close()
    try:
        connection.ensure_connection()
    except Exception as error:  # Each driver raises its own, also while Django sets the connection up.
        return database_errors.sentence(error)
    return ""


def unmigrated() -> str:
    """Return which migrations are missing, or nothing. Raises what the driver raises."""
    from django.db import DEFAULT_DB_ALIAS, connections

    try:
        migrations.refuse_missing()
    except Unusable as missing:
        return f"{database_errors.where(connections[DEFAULT_DB_ALIAS])} lacks migrations: {missing}."
    return ""
