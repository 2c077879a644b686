"""Gives each publish an id of its own that the retries of that publish share, so that it is stored once."""

import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: How many failed publishes of this process are remembered, until they are tried again.
REMEMBERED = 256


@dataclass(frozen=True)
class _Failed:
    """A publish that failed. It holds on to its properties, so that no other dict gets their `id`."""

    properties: dict[str, Any]
    body: bytes
    name: str


_failed: "OrderedDict[int, _Failed]" = OrderedDict()
_lock = threading.Lock()


@contextmanager
def publish_id(message: dict[str, Any]) -> Iterator[str]:
    """Yield the id under which a message is stored; the same one again only for a retry of a publish that failed.

    kombu prepares a message anew for each try, from the same dict of properties and the same body, perhaps on another
    connection. Neither the caller's ``message_id`` nor anything within the message decides: a copy is a new message.
    """
    properties, body = message["properties"], _digest(message["body"])
    with _lock:
        failed = _failed.pop(id(properties), None)
    is_retry = failed is not None and failed.properties is properties and failed.body == body
    name = failed.name if failed is not None and is_retry else uuid.uuid4().hex
    try:
        yield name
    except BaseException:
        with _lock:
            _failed[id(properties)] = _Failed(properties, body, name)
            while len(_failed) > REMEMBERED:
                _failed.popitem(last=False)
        raise


def _digest(body: Any) -> bytes:
    return hashlib.sha256(body.encode() if isinstance(body, str) else bytes(body)).digest()


def _forget_in_child() -> None:
    """In a forked child: the lock may be held by a thread that is not here, and the retries are the parent's."""
    global _lock
    _lock = threading.Lock()
    _failed.clear()


os.register_at_fork(after_in_child=_forget_in_child)
