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
BLIND = frozenset({op.ENQUEUE, op.CONFIGURE})


class PendingCommit:
    """Encoded commands of one caller; ``answers`` or ``error`` are set when they are committed.

    Raises TypeError and ValueError for commands that cannot be stored.
    """

    __slots__ = ("accepts", "answers", "durable", "encoded", "error", "is_blind", "lines", "payloads", "size")

    #: Whether it adds a message to the queue.
    accepts: bool
    #: Whether it can be appended without reading what the queue holds.
    is_blind: bool

    def __init__(self, commands: Sequence[Command], durable: bool, is_exact: bool = False) -> None:
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
        opcodes = {line[0] for line in self.lines}
        self.accepts = op.ENQUEUE in opcodes
        self.is_blind = not is_exact and opcodes <= BLIND
        self.answers: list[Any] | None = None
        self.error: JQueueError | None = None

    @property
    def is_done(self) -> bool:
        return self.answers is not None or self.error is not None
