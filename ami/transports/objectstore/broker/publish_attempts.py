"""Gives each publish an id of its own that the retries of that publish share, so that it is stored once."""

import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: How many failed publishes of this process are remembered, until they are tried again.
REMEMBERED = 4096


class OwnHeaders(dict[str, Any]):
    """The headers of one publish alone: its retries are known by them, also where the message is prepared again."""


@dataclass(frozen=True, slots=True)
class PublishAttempt:
    """One try to publish a message; ``name`` is the id under which it is stored, ``known_by`` is what retries share."""

    name: str
    known_by: dict[str, Any]
    body: Any


@dataclass(frozen=True, slots=True)
class _Failed:
    """It holds on to what the retries share, so that no other dict gets its `id`, and not to the message's body."""

    name: str
    known_by: dict[str, Any]
    digest: bytes


_failed: "OrderedDict[int, _Failed]" = OrderedDict()
_lock = threading.Lock()


def begin_attempt(message: dict[str, Any]) -> PublishAttempt:
    """Return a new attempt; its name is that of an earlier one only for a retry of a publish that failed.

    kombu prepares a message anew for each try, from the same dict of properties and the same body, perhaps on another
    connection; `publish_many` from the same `OwnHeaders`. Neither the caller's ``message_id`` nor anything within the
    message decides: a copy is a new message.
    """
    headers, body = message["headers"], message["body"]
    known_by = headers if isinstance(headers, OwnHeaders) else message["properties"]
    name = _failed_name(known_by, body) if _failed else None
    return PublishAttempt(name or uuid.uuid4().hex, known_by, body)


def _failed_name(known_by: dict[str, Any], body: Any) -> str | None:
    with _lock:
        failed = _failed.pop(id(known_by), None)
    if failed is None or failed.known_by is not known_by or failed.digest != _digest(body):
        return None
    return failed.name


def remember_failed(attempts: Iterable[PublishAttempt]) -> None:
    """Let retries of these attempts have the same names."""
    with _lock:
        for one in attempts:
            _failed[id(one.known_by)] = _Failed(one.name, one.known_by, _digest(one.body))
        while len(_failed) > REMEMBERED:
            _failed.popitem(last=False)


def _digest(body: Any) -> bytes:
    return hashlib.sha256(body.encode() if isinstance(body, str) else bytes(body)).digest()


def _forget_in_child() -> None:
    """In a forked child: the lock may be held by a thread that is not here, and the retries are the parent's."""
    global _lock
    _lock = threading.Lock()
    _failed.clear()


os.register_at_fork(after_in_child=_forget_in_child)
