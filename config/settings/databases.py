"""Builds DATABASES from a URL, for PostgreSQL and for SQLite alike."""

from typing import Any

from .environment import env

SQLITE_OPTIONS = {
    # An immediate transaction takes the write lock at its start, so that a read-then-write cannot dead-lock (Django's
    # notes on SQLite, "Database is locked").
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}


def databases(url: str) -> dict[str, dict[str, Any]]:
    """Return DATABASES for a ``postgres://`` or ``sqlite://`` URL."""
    database = dict(env.db_url_config(url))
    if database["ENGINE"].endswith("sqlite3"):
        database["OPTIONS"] = SQLITE_OPTIONS
    else:
        database["CONN_HEALTH_CHECKS"] = True
        database["CONN_MAX_AGE"] = 60
        database.setdefault("OPTIONS", {})["connect_timeout"] = 5
        database["OPTIONS"] |= {"keepalives": 1, "keepalives_idle": 60, "keepalives_interval": 10}
    return {"default": database}


def caches(redis_url: str) -> dict[str, dict[str, Any]]:
    """Return CACHES: Redis, or the process's own memory where there is none. A cache may vanish at any time."""
    if not redis_url:
        return {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    return {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url}}
