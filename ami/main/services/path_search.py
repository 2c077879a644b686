"""Search of captures by path: anywhere in it with a trigram index, else, on PostgreSQL, by its beginning."""

from django.db import connection

#: Of either kind; the migration chooses the kind by whether pg_trgm is available.
INDEX = "captures_by_path"

#: A shorter text has no trigram.
LEAST_CHARACTERS = 3


def lookup() -> str:
    """Return the lookup that this database answers from an index; SQLite has few rows and none."""
    if connection.vendor != "postgresql":
        return "path__icontains"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.oid = to_regclass(%s)", [INDEX]
        )
        row = cursor.fetchone()
    return "path__icontains" if row and row[0] == "gin" else "path__istartswith"


def path_text(text: str) -> str:
    """Parse a search text.

    Raises:
        ValueError: it is too short, too long, or has a NUL character.
    """
    if not LEAST_CHARACTERS <= len(text) <= 200 or "\x00" in text:
        raise ValueError(f"must be {LEAST_CHARACTERS} to 200 characters without NUL")
    return text
