"""Builds DATABASES from a URL, for PostgreSQL and for SQLite alike, and the cache and results there without Redis."""

from typing import Any

from celery.app.backends import BACKEND_ALIASES
from environ import Env

from ami.environment.declaration import of
from config.schema.addresses import Addresses
from config.schema.tasks import Tasks
from config.schema.urls import wrong_url

from .keepalive import DEFAULT_SECONDS, libpq_options, tcp_options

DATABASE = of(Addresses, "database_url")
SHARED = ("postgres", "postgresql")

#: Django's own, with a file that only its owner may read.
SQLITE = "config.sqlite3"

SQLITE_OPTIONS = {
    # An immediate transaction takes the write lock at its start, so that a read-then-write cannot dead-lock (Django's
    # notes on SQLite, "Database is locked").
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}

#: A connection is replaced after this time, so that one to a server that was replaced does not live forever.
MAX_AGE_SECONDS = 60

#: The result backend in the database; chords work on it, also where a part is delivered twice.
DATABASE_RESULTS = "config.result_backend:Backend"

RESULTS = of(Tasks, "celery_result_backend")

#: The table of the cache in the database; `migrate` creates it (config/apps.py).
CACHE_TABLE = "antenna_cache"
CACHE_ENTRIES = 10_000


def wrong_database(url: str) -> str:
    """Return what is wrong with a database's URL, or nothing."""
    return wrong_url(DATABASE, url, (*SHARED, "sqlite"), password=False)


def unfit_database(url: str) -> str:
    """Return why a deployment cannot share this database, or nothing."""
    return wrong_url(DATABASE, url, SHARED)


def wrong_results(backend: str) -> str:
    """Return what is wrong with the name or URL of a result backend, or nothing."""
    kind, separator, _ = backend.partition("://")
    if separator and kind.partition("+")[0] not in {"db", *(alias.partition("+")[0] for alias in BACKEND_ALIASES)}:
        return f"{RESULTS.name} is of no kind that Celery knows; write it like {RESULTS.example}."
    return ""


def databases(url: str, keepalive_seconds: int = DEFAULT_SECONDS) -> dict[str, dict[str, Any]]:
    """Return DATABASES for a ``postgres://`` or ``sqlite://`` URL."""
    database = dict(Env.db_url_config(url))
    if database["ENGINE"].endswith("sqlite3"):
        database["ENGINE"] = SQLITE
        database["OPTIONS"] = SQLITE_OPTIONS
    else:
        database["CONN_HEALTH_CHECKS"] = True
        database["CONN_MAX_AGE"] = int(database.get("CONN_MAX_AGE", MAX_AGE_SECONDS))
        # With a pooler in front; see "PgBouncer" in docs/operations/services.md.
        asked = str(database.get("DISABLE_SERVER_SIDE_CURSORS", "")).lower()
        database["DISABLE_SERVER_SIDE_CURSORS"] = asked in ("1", "on", "true", "yes")
        database.setdefault("OPTIONS", {})["connect_timeout"] = 5
        database["OPTIONS"] |= libpq_options(keepalive_seconds)
    return {"default": database}


def caches(redis_url: str, keepalive_seconds: int = DEFAULT_SECONDS) -> dict[str, dict[str, Any]]:
    """Return CACHES: Redis, or the database where there is none, for every process the same. It may vanish any time."""
    if redis_url:
        options = {
            "serializer": "config.redis_values.JsonValues",
            "socket_keepalive": True,
            "socket_keepalive_options": tcp_options(keepalive_seconds),
        }
        redis = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url, "OPTIONS": options}
        return {"default": redis}
    table = {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": CACHE_TABLE}
    return {"default": {**table, "OPTIONS": {"MAX_ENTRIES": CACHE_ENTRIES}}}
