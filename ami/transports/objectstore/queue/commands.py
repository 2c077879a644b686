"""The commands of a queue: each is one line of its journal, and every reader applies the same lines."""

import types
import typing
import zlib
from functools import cache
from typing import Any, NamedTuple

from ami.transports.objectstore.queue import opcodes as op


class Enqueue(NamedTuple):
    """Add a message, ordered by priority (lower first), then by arrival. Answer: True.

    An id that the queue holds, or that was acknowledged a short while ago, is not stored again; the answer is False.
    A queue that is full and rejects messages answers QueueFullError.
    ``expires`` and ``created`` are epoch seconds; ``created`` None is the moment it is stored.
    """

    id: str
    payload: bytes
    entrypoint: str = ""
    priority: int = 0
    expires: float | None = None
    created: float | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the line, and the bytes that follow the lines of its batch."""
        line = [op.ENQUEUE, self.id, self.entrypoint, self.priority, len(self.payload), self.expires, self.created]
        return [*line, zlib.crc32(self.payload)], self.payload


class Claim(NamedTuple):
    """Lease up to ``limit`` messages to ``owner``; without ``lease_seconds`` the lease has no end.

    ``entrypoint`` None is any. Answer: a list of `Entry`, in their order.
    """

    limit: int
    owner: str
    lease_seconds: float | None = None
    entrypoint: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.CLAIM, self.limit, self.owner, self.lease_seconds, self.entrypoint], b""


class Ack(NamedTuple):
    """Remove a handled message. Answer: None, or JobNotFoundError."""

    id: str

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.ACK, self.id], b""


class Return(NamedTuple):
    """Requeue a leased message at its old place, flagged as redelivered. Answer: None, or JobNotFoundError.

    ``counted``: the delivery counts toward the delivery limit. With an ``owner``, only its own lease is returned: one
    that lost its lease must not take the message from the new owner.
    """

    id: str
    counted: bool = True
    owner: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.RETURN, self.id, self.counted, self.owner], b""


class Bury(NamedTuple):
    """Take a message out of delivery for good, for ``reason``; ``owner`` as in `Return`.

    Answer: None, or JobNotFoundError.
    """

    id: str
    reason: str
    owner: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.BURY, self.id, self.reason, self.owner], b""


class Renew(NamedTuple):
    """Renew the lease of one message; ``lease_seconds`` None renews it for its last length.

    ``owner`` as in `Return`. Answer: None, or JobNotFoundError.
    """

    id: str
    owner: str | None = None
    lease_seconds: float | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.RENEW, self.id, self.owner, self.lease_seconds], b""


class RenewAll(NamedTuple):
    """Renew all leases of ``owner``. Answer: their number."""

    owner: str
    lease_seconds: float

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.RENEW_ALL, self.owner, self.lease_seconds], b""


class Rescue(NamedTuple):
    """Requeue what ``owner`` (None: any) has not renewed for ``timeout_seconds``. Answer: the number of messages."""

    timeout_seconds: float
    owner: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.RESCUE, self.timeout_seconds, self.owner], b""


class Purge(NamedTuple):
    """Remove every waiting message. Answer: their number."""

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.PURGE], b""


class Take(NamedTuple):
    """Remove and return up to ``limit`` messages, for consumers that do not acknowledge. Answer: as of Claim."""

    limit: int
    entrypoint: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.TAKE, self.limit, self.entrypoint], b""


class Sweep(NamedTuple):
    """Requeue ended leases and bury expired messages, as every other command does. Answer: None."""

    def wire(self) -> tuple[list[Any], bytes]:
        return [op.SWEEP], b""


class Configure(NamedTuple):
    """Set what the queue does with failed messages: ``delivery_limit`` deliveries (None: any number), then buried.

    A buried message waits to be moved to its dead-letter queue; with ``keeps_buried`` False it is removed at once.
    ``max_length`` and ``rejects_publish`` are a `LengthLimit`.
    """

    delivery_limit: int | None = None
    keeps_buried: bool = True
    max_length: int | None = None
    rejects_publish: bool = False

    def wire(self) -> tuple[list[Any], bytes]:
        line = [op.CONFIGURE, self.delivery_limit, self.keeps_buried]
        # Without a limit the line is one that versions without limits can read.
        return (line if self.max_length is None else [*line, self.max_length, self.rejects_publish]), b""


Command = Enqueue | Claim | Take | Ack | Return | Bury | Renew | RenewAll | Rescue | Purge | Sweep | Configure


def check(command: Command) -> None:
    """Raise TypeError for a value of another type: once it is in the journal, no reader could apply it."""
    kind: Any = type(command)
    for value, (name, allowed) in zip(command, _types(kind), strict=True):
        if not isinstance(value, allowed):
            raise TypeError(f"{kind.__name__}.{name} cannot be {value!r}")


@cache
def _types(kind: type[Any]) -> list[tuple[str, tuple[type, ...]]]:
    return [(name, _allowed(hint)) for name, hint in typing.get_type_hints(kind).items()]


def _allowed(hint: Any) -> tuple[type, ...]:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return (*kinds, int) if float in kinds else kinds
