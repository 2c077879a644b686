"""Checks whether the database has every migration of the code, without loading a model."""

import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from ami.queues.connection_reasons import Unusable, database_place

from . import Need
from .probes import asking

UNDEFINED_TABLE = "42P01"
REMEDY = "'python manage.py migrate' applies them"

#: A migration of a database that was made before the migrations began anew.
EARLIER = ("main", "0002_login_attempts")
MADE_EARLIER = (
    "an earlier version made it, whose migrations no longer exist: drop it ('make run' keeps its own in .antenna/run: "
    "delete that folder), or name another database; then run 'python manage.py migrate'"
)


def need() -> Need:
    """Return the migrations as something to wait for. Another process applies them: ``manage.py migrate``."""
    from django.conf import settings

    where = f"of {database_place(settings.DATABASES['default'])}"
    return Need("the migrations", where, asking(refuse_missing), "are applied", once=REMEDY)


def refuse_missing() -> None:
    """Raise `Unusable` when some are missing, or an earlier version made the database.

    The names of the files are compared with the rows of `django_migrations`. The plan of Django's executor is the same
    (a test compares them: `migrate` records what a squashed migration replaces, and the squashed one) and takes the
    whole app registry: 0.8 s instead of 0.15 s.
    """
    applied = in_database()
    if EARLIER in applied:
        raise Unusable(MADE_EARLIER)
    missing = sorted(in_code() - applied)
    if missing:
        first = ".".join(missing[0])
        raise Unusable(f"{len(missing)} are not applied, such as {first}; {REMEDY}")


@cache
def in_code() -> frozenset[tuple[str, str]]:
    """Return app label and name of every migration on disk."""
    from django.apps.config import AppConfig
    from django.conf import settings

    return frozenset(
        (config.label, module.name)
        for config in map(AppConfig.create, settings.INSTALLED_APPS)
        for module in pkgutil.iter_modules([str(Path(config.path) / "migrations")])
        if module.name[0] not in "_~"
    )


def in_database() -> set[tuple[str, str]]:
    """Return app label and name of every applied migration; none while there is no table of them."""
    from django.db import connections

    connection: Any = connections["default"]
    connection.ensure_connection()
    try:
        # Django's own cursor would warn that the apps are not loaded.
        cursor = connection.connection.cursor()
        return set(cursor.execute("SELECT app, name FROM django_migrations").fetchall())
    except connection.Database.Error as error:
        if getattr(error, "sqlstate", None) != UNDEFINED_TABLE and "no such table" not in str(error):
            raise
        return set()
    finally:
        connection.close()
