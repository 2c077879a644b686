"""The state of a queue: its journal's batches, applied in order. Every process that does so has the same state."""

from collections.abc import Callable
from heapq import heappop
from typing import Any, ClassVar

from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.entry_index import EntryIndex
from ami.transports.objectstore.queue.limits import MAXLEN, LengthLimit, QueueFullError
from ami.transports.objectstore.storage.errors import JobNotFoundError, StorageError

#: The ids of so many acknowledged messages are remembered, so that a publish tried again is stored once ...
REMEMBERED = 20_000

#: ... for so long. NATS JetStream's window for the same purpose is two minutes, too.
REMEMBERED_SECONDS = 120.0

#: Why a message is buried, in RabbitMQ's words (https://www.rabbitmq.com/docs/dlx).
EXPIRED, DELIVERY_LIMIT, REJECTED = "expired", "delivery_limit", "rejected"

#: Module constants: they are compared with each line of a batch.
ENQUEUE, MOVED = op.ENQUEUE, op.MOVED


class State(EntryIndex):
    """The messages of one queue. Not thread-safe: the store's lock guards it."""

    def __init__(self) -> None:
        super().__init__()
        #: Batches applied so far.
        self.version = 0
        #: The latest moment of any batch; it never decreases, whatever the writers' clocks do.
        self.now = 0.0
        self.order = 0
        self.delivery_limit: int | None = None
        self.keeps_buried = True
        self.limit = LengthLimit()

    def apply(self, moment: float, lines: list[list[Any]], segment: int, offset: int) -> list[Any]:
        """Apply one batch and return its answers; its payloads lie in ``segment`` from ``offset`` on, in order."""
        self.version += 1
        if moment > self.now:
            self.now = moment
        self._sweep()
        answers: list[Any] = []
        for line in lines:
            opcode = line[0]
            if opcode == ENQUEUE:
                answers.append(self._enqueue(line, segment, offset))
                offset += line[4]
            elif opcode == MOVED:
                self._moved(line, segment, offset)
                offset += line[2]
            else:
                try:
                    answers.append(self._APPLY[opcode](self, *line[1:]))
                except JobNotFoundError as error:
                    answers.append(error)
                except KeyError:
                    raise StorageError(f"the journal holds a command '{opcode}' of a newer version") from None
        return answers

    def _sweep(self) -> None:
        """Requeue ended leases, bury expired messages, and forget old acknowledgements."""
        if not (self._leases or self._expiring or self.acknowledged):
            return  # As while a queue that nothing consumed yet is opened.
        while (due := self.next_due()) is not None and due <= self.now:
            _, name = heappop(self._leases)
            self._requeue(self.leased[name], counted=True)
        while self.is_overdue(self.now):
            self._bury(self.entries[heappop(self._expiring)[1]], EXPIRED)
        remembered = self.acknowledged
        while remembered:
            name, moment = next(iter(remembered.items()))
            if len(remembered) <= REMEMBERED and moment > self.now - REMEMBERED_SECONDS:
                break
            del remembered[name]

    def _enqueue(self, line: list[Any], segment: int, offset: int) -> bool | QueueFullError:
        _, name, entrypoint, priority, length, expires, created, checksum = line
        if name in self.entries or name in self.acknowledged:
            return False
        if self.limit.rejects(self.depth()):
            return QueueFullError(f"{self.limit.messages} messages wait, and no more may")
        self.order += 1
        moment = self.now if created is None else created
        entry = self.entries[name] = Entry(name, entrypoint, priority, self.order, moment, expires)
        entry.segment, entry.offset, entry.length, entry.checksum = segment, offset, length, checksum
        self._add_to_segment(entry)
        self._wait(entry)
        self._drop_excess()
        return True

    def _drop_excess(self) -> None:
        while self.limit.is_exceeded(self.depth()) and (entry := self._next(None)) is not None:
            self._bury(entry, MAXLEN)

    def _claim(self, count: int, owner: str, seconds: float | None, entrypoint: str | None) -> list[Entry]:
        claimed: list[Entry] = []
        while len(claimed) < count and (entry := self._next(entrypoint)) is not None:
            heappop(self._waiting[entry.entrypoint])
            entry.owner = owner
            self.leased[entry.id] = entry
            self._lease(entry, self.now, seconds)
            claimed.append(entry)
        return claimed

    def _take(self, count: int, entrypoint: str | None) -> list[Entry]:
        taken: list[Entry] = []
        while len(taken) < count and (entry := self._next(entrypoint)) is not None:
            heappop(self._waiting[entry.entrypoint])
            self._forget(entry)
            self.acknowledged[entry.id] = self.now
            taken.append(entry)
        return taken

    def _ack(self, name: str) -> None:
        entry = self._found(name)
        self._forget(entry)
        if entry.buried is None:
            self.acknowledged[name] = self.now

    def _return(self, name: str, counted: bool, owner: str | None) -> None:
        entry = self._found(name, owner)
        if entry.owner is not None:
            self._requeue(entry, counted)

    def _requeue(self, entry: Entry, counted: bool) -> None:
        self.leased.pop(entry.id, None)
        entry.owner = entry.beat = entry.until = None
        entry.redelivered = True
        entry.deliveries += counted
        if counted and self.delivery_limit is not None and entry.deliveries > self.delivery_limit:
            self._bury(entry, DELIVERY_LIMIT)
        else:
            self._wait(entry)
            self._drop_excess()

    def _bury_by_id(self, name: str, reason: str, owner: str | None) -> None:
        self._bury(self._found(name, owner), reason)

    def _bury(self, entry: Entry, reason: str) -> None:
        if not self.keeps_buried:
            self._forget(entry)
            return
        self.leased.pop(entry.id, None)
        entry.owner = entry.beat = entry.until = None
        entry.buried = reason
        self.buried[entry.id] = entry

    def _renew(self, name: str, owner: str | None, seconds: float | None) -> None:
        entry = self._found(name, owner)
        if entry.owner is None:
            return
        if seconds is None and entry.until is not None and entry.beat is not None:
            seconds = entry.until - entry.beat
        self._lease(entry, self.now, seconds)

    def _renew_all(self, owner: str, seconds: float) -> int:
        mine = [entry for entry in self.leased.values() if entry.owner == owner]
        for entry in mine:
            self._lease(entry, self.now, seconds)
        return len(mine)

    def _rescue(self, timeout: float, owner: str | None) -> int:
        stale = [
            entry
            for entry in self.leased.values()
            if (owner is None or entry.owner == owner) and (entry.beat is None or entry.beat <= self.now - timeout)
        ]
        for entry in stale:
            self._requeue(entry, counted=True)
        return len(stale)

    def _purge(self) -> int:
        waiting = [entry for entry in self.entries.values() if entry.is_waiting]
        for entry in waiting:
            self._forget(entry)
        self._waiting.clear()
        self._expiring.clear()
        return len(waiting)

    def _swept(self) -> None:
        """Every batch begins with a sweep."""

    def _configure(
        self,
        delivery_limit: int | None,
        keeps_buried: bool,
        max_length: int | None = None,
        rejects_publish: bool = False,
    ) -> None:
        self.delivery_limit, self.keeps_buried = delivery_limit, keeps_buried
        self.limit = LengthLimit(max_length, rejects_publish)
        self._drop_excess()

    def _mark_all_redelivered(self) -> None:
        """After a power failure the last claims may be missing from the journal."""
        for entry in self.entries.values():
            entry.redelivered = True

    def _moved(self, line: list[Any], segment: int, offset: int) -> None:
        entry = self.entries.get(line[1])
        if entry is None:
            return
        self._remove_from_segment(entry)
        entry.segment, entry.offset = segment, offset
        self._add_to_segment(entry)

    def _found(self, name: str, owner: str | None = None) -> Entry:
        entry = self.entries.get(name)
        if entry is None or (owner is not None and entry.owner != owner):
            raise JobNotFoundError(name)
        return entry

    _APPLY: ClassVar[dict[str, Callable[..., Any]]] = {
        op.CLAIM: _claim,
        op.TAKE: _take,
        op.SWEEP: _swept,
        op.ACK: _ack,
        op.RETURN: _return,
        op.BURY: _bury_by_id,
        op.RENEW: _renew,
        op.RENEW_ALL: _renew_all,
        op.RESCUE: _rescue,
        op.PURGE: _purge,
        op.CONFIGURE: _configure,
        op.POWER_FAILURE: _mark_all_redelivered,
    }
