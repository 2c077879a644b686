"""What may be done to a queue: each command is one line of its journal, and every reader applies the same lines."""

import types
import typing
import zlib
from functools import cache
from typing import Any, NamedTuple


class Enqueue(NamedTuple):
    """Put a message at its place by priority (lower first), then by arrival.

    An id that the queue holds, or has acknowledged a short while ago, is stored once: the answer is False then.
    ``expires`` and ``created`` are in epoch seconds; without ``created`` it is the moment it is stored. Answer: True.
    """

    id: str
    payload: bytes
    entrypoint: str = ""
    priority: int = 0
    expires: float | None = None
    created: float | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form: the line, and the bytes that follow it."""
        line = ["+", self.id, self.entrypoint, self.priority, len(self.payload), self.expires, self.created]
        return [*line, zlib.crc32(self.payload)], self.payload


class Claim(NamedTuple):
    """Lease up to ``limit`` messages to ``owner``; without ``lease_seconds`` until someone returns them.

    ``entrypoint`` None is any. Answer: a list of `Entry`, the first ones first.
    """

    limit: int
    owner: str
    lease_seconds: float | None = None
    entrypoint: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["?", self.limit, self.owner, self.lease_seconds, self.entrypoint], b""


class Ack(NamedTuple):
    """Remove a message that was handled. Answer: None, or JobNotFoundError."""

    id: str

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["-", self.id], b""


class Return(NamedTuple):
    """Give a leased message back to its old place, flagged as redelivered.

    ``counted`` says whether its delivery counts toward the delivery limit. ``owner`` None returns whoever's it is; one
    that lost its lease must not take the message from who has it now. Answer: None, or JobNotFoundError.
    """

    id: str
    counted: bool = True
    owner: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["<", self.id, self.counted, self.owner], b""


class Bury(NamedTuple):
    """Take a message out of delivery for good, for ``reason``; ``owner`` as of `Return`.

    Answer: None, or JobNotFoundError.
    """

    id: str
    reason: str
    owner: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["!", self.id, self.reason, self.owner], b""


class Renew(NamedTuple):
    """Renew the lease of one message, for as long as it was when ``lease_seconds`` is None.

    ``owner`` None renews whoever's it is. Answer: None, or JobNotFoundError.
    """

    id: str
    owner: str | None = None
    lease_seconds: float | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["~", self.id, self.owner, self.lease_seconds], b""


class RenewAll(NamedTuple):
    """Renew the lease of everything that ``owner`` holds. Answer: how many."""

    owner: str
    lease_seconds: float

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["*", self.owner, self.lease_seconds], b""


class Rescue(NamedTuple):
    """Return what ``owner`` holds (None: whoever) and has not renewed for ``timeout_seconds``. Answer: how many."""

    timeout_seconds: float
    owner: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["^", self.timeout_seconds, self.owner], b""


class Purge(NamedTuple):
    """Remove every waiting message. Answer: how many."""

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["0"], b""


class Take(NamedTuple):
    """Remove up to ``limit`` messages and hand them out, for consumers that do not acknowledge. Answer: as of Claim."""

    limit: int
    entrypoint: str | None = None

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["t", self.limit, self.entrypoint], b""


class Sweep(NamedTuple):
    """Return what nobody renewed, and bury what has outlived its time, as every other command does. Answer: None."""

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["s"], b""


class Configure(NamedTuple):
    """Say what the queue does with failed messages: ``delivery_limit`` deliveries (None: any number), then buried.

    What is buried waits for whoever moves it to its dead-letter queue, or with ``keeps_buried`` False is gone at once.
    """

    delivery_limit: int | None = None
    keeps_buried: bool = True

    def wire(self) -> tuple[list[Any], bytes]:
        """Return the journal's form."""
        return ["=", self.delivery_limit, self.keeps_buried], b""


Command = Enqueue | Claim | Take | Ack | Return | Bury | Renew | RenewAll | Rescue | Purge | Sweep | Configure


def check(command: Command) -> None:
    """Raise TypeError for a value of another type: once in the journal, no reader could apply it any more."""
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
