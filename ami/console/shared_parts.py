"""What the processes of web share about those who watch, in Redis; without Redis each has its own.

Redis may vanish any time: then it is as if nothing was shared.
"""

import hashlib
import logging
from typing import Any

from django.conf import settings
from django.core.cache import cache

logger = logging.getLogger(__name__)


def read(kind: str, key: str) -> Any:
    """Return what was written under a key; None where there is nothing."""
    if not _is_redis():
        return None
    try:
        return cache.get(_name(kind, key))
    except Exception as error:  # Whatever its client raises.
        logger.debug("Cache not read: %r", error)
        return None


def write(kind: str, key: str, value: Any, seconds: float) -> None:
    """Share a value that JSON has for so long."""
    if not _is_redis():
        return
    try:
        cache.set(_name(kind, key), value, seconds)
    except Exception as error:
        logger.debug("Cache not written: %r", error)


def forget(kind: str, key: str) -> None:
    """Share a value no longer."""
    if not _is_redis():
        return
    try:
        cache.delete(_name(kind, key))
    except Exception as error:
        logger.debug("Cache not changed: %r", error)


def _is_redis() -> bool:
    # In the database it would cost more than it saves.
    return "redis" in str(settings.CACHES["default"]["BACKEND"])


def _name(kind: str, key: str) -> str:
    # A session's key is a secret.
    return f"console.{kind}.{hashlib.sha256(key.encode()).hexdigest()}"
