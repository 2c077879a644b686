"""Times in statements that are written by hand, on PostgreSQL and SQLite."""

from datetime import UTC, datetime
from typing import Any

from django.db import connection


def now() -> str:
    """Return the database's time as SQL, for a statement without parameters."""
    return "STATEMENT_TIMESTAMP()" if connection.vendor == "postgresql" else "STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')"


def now_beside_parameters() -> str:
    """Return the same for a statement with parameters, in which each ``%`` is doubled."""
    return now().replace("%", "%%")


def moment(value: Any) -> datetime:
    """Return a time as the driver gives it: PostgreSQL's has a zone, SQLite's is text in UTC."""
    found: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if found.tzinfo else found.replace(tzinfo=UTC)
