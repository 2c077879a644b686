"""Reads the messages of a slot, in parts, without keeping them."""

from collections.abc import Callable

from ami.transports.objectstore.broker.wheel import Delayed
from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue.batch import decode
from ami.transports.objectstore.storage.errors import StorageError

AT_ONCE, BYTES_AT_ONCE = 500, 2 * 1024**2

#: The kind of a mark in a slot that cannot be removed yet: so many messages, the payload says, were moved on.
MOVED = "moved"


class Cascade:
    """Follows the journal of a slot, and hands on its messages in parts, without the first ``skip``."""

    def __init__(self, move: Callable[[list[Delayed]], None], skip: int = 0) -> None:
        self._move = move
        self._skip = skip
        self._part: list[Delayed] = []
        self._size = 0
        #: How many messages there are, and how many of the first ones were moved on before.
        self.count = self.moved = 0

    def reset(self, snapshot: bytes | None) -> None:
        """See the port; a slot has no snapshots."""
        if snapshot is not None:
            raise StorageError("a slot of delayed messages holds a snapshot")
        self._part, self._size, self.count = [], 0, 0

    def feed(self, segment: int, offset: int, body: bytes) -> None:  # noqa: ARG002 - the port's
        """Take the messages of a batch."""
        _, lines, at = decode(body)
        for line in lines:
            if line[0] != op.ENQUEUE:
                continue
            _, name, kind, _, length, _, due, _ = line
            payload, at = body[at : at + length], at + length
            if kind == MOVED:
                self.moved = max(self.moved, int(payload))
                continue
            self.count += 1
            if self.count <= self._skip:
                continue
            self._part.append(Delayed.load(name, due, payload, kind))
            self._size += length
            if len(self._part) >= AT_ONCE or self._size >= BYTES_AT_ONCE:
                self.flush()

    def flush(self) -> None:
        """Hand on what is left."""
        part, self._part, self._size = self._part, [], 0
        if part:
            self._move(part)
