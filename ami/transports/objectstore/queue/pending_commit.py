"""The commands of one caller, waiting for their batch."""

from collections.abc import Sequence
from typing import Any

from ami.transports.objectstore.journal.frames import MAX_BODY_BYTES
from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue.batch import encode_line
from ami.transports.objectstore.queue.commands import Command, check
from ami.transports.objectstore.storage.errors import JQueueError

#: The most that one caller may commit at once.
COMMIT_BYTES = MAX_BODY_BYTES - 4096

#: Commands whose answers do not depend on what the queue holds.
BLIND = (op.ENQUEUE, op.CONFIGURE)


class PendingCommit:
    """Encoded commands of one caller; ``answers`` or ``error`` are set when they are committed.

    Raises TypeError and ValueError for commands that cannot be stored.
    """

    __slots__ = ("answers", "durable", "encoded", "error", "lines", "payloads", "size")

    def __init__(self, commands: Sequence[Command], durable: bool) -> None:
        self.lines: list[list[Any]] = []
        self.encoded: list[str] = []
        self.payloads: list[bytes] = []
        for command in commands:
            check(command)
            wire, payload = command.wire()
            self.lines.append(wire)
            self.encoded.append(encode_line(wire))
            self.payloads.append(payload)
        self.size = sum(map(len, self.encoded)) + len(self.encoded) + sum(map(len, self.payloads))
        if self.size > COMMIT_BYTES:
            raise ValueError(f"a commit of {self.size} bytes; up to {COMMIT_BYTES} fit")
        self.durable = durable
        self.answers: list[Any] | None = None
        self.error: JQueueError | None = None

    @property
    def is_done(self) -> bool:
        return self.answers is not None or self.error is not None

    @property
    def accepts(self) -> bool:
        """Whether it adds a message to the queue."""
        return any(line[0] == op.ENQUEUE for line in self.lines)

    @property
    def is_blind(self) -> bool:
        """Whether its answers do not depend on what the queue holds."""
        return all(line[0] in BLIND for line in self.lines)
