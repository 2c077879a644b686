"""What a queue holds, made by applying its journal's batches in order; every process that does so holds the same."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.storage.errors import JobNotFoundError, StorageError

#: The ids of so many acknowledged messages are remembered, so that a publish tried again is stored once ...
REMEMBERED = 20_000

#: ... for so long. NATS JetStream's window for the same purpose is two minutes, too.
REMEMBERED_SECONDS = 120.0

#: So many items about messages that are gone may stay in a heap, however few messages there are.
STALE_AT_MOST = 64

#: What a message takes in its segment beside its payload, about.
LINE_BYTES = 100

#: Why a message is buried, in RabbitMQ's words (https://www.rabbitmq.com/docs/dlx).
EXPIRED, DELIVERY_LIMIT, REJECTED = "expired", "delivery_limit", "rejected"


class State:
    """The messages of one queue. Not thread-safe: the store's lock guards it."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        #: Batches applied so far.
        self.version = 0
        #: The latest moment any writer told; it never goes back, whatever the writers' clocks do.
        self.now = 0.0
        self.delivery_limit: int | None = None
        self.keeps_buried = True
        self.buried: dict[str, Entry] = {}
        self.leased: dict[str, Entry] = {}
        #: How many bytes of each segment of the journal are still needed.
        self.in_segment: dict[int, int] = {}
        self.order = 0
        self._waiting: dict[str, list[tuple[int, int, str]]] = {}
        self._leases: list[tuple[float, str]] = []
        self._expiring: list[tuple[float, str]] = []
        self.acknowledged: OrderedDict[str, float] = OrderedDict()

    # What may be asked.

    def depth(self) -> int:
        """Return how many messages wait to be delivered."""
        return len(self.entries) - len(self.leased) - len(self.buried)

    def has_work(self, moment: float, entrypoint: str | None = None) -> bool:
        """Return whether a claim at ``moment`` would find something, counting leases that have ended by then."""
        due = self.next_due()
        if due is not None and due <= moment:
            return True
        names = self._waiting if entrypoint is None else (entrypoint,)
        return any(self._first(name) is not None for name in names)

    def next_due(self) -> float | None:
        """Return the moment at which the next lease ends, None when none does."""
        leases = self._leases
        while leases:
            until, name = leases[0]
            entry = self.leased.get(name)
            if entry is not None and entry.until == until:
                return until
            heappop(leases)
        return None

    def is_overdue(self, moment: float) -> bool:
        """Whether a message waits that has outlived its time by ``moment``."""
        expiring = self._expiring
        while expiring and expiring[0][0] <= moment:
            entry = self.entries.get(expiring[0][1])
            if entry is not None and entry.is_waiting and entry.expires == expiring[0][0]:
                return True
            heappop(expiring)
        return False

    # Applying a batch.

    def apply(self, moment: float, lines: list[list[Any]], segment: int, offset: int) -> list[Any]:
        """Apply one batch and return its answers; its payloads lie in ``segment`` from ``offset`` on, in order."""
        self.version += 1
        if moment > self.now:
            self.now = moment
        self._sweep()
        answers: list[Any] = []
        for line in lines:
            if line[0] == "+":
                answers.append(self._enqueue(line, segment, offset))
                offset += line[4]
            elif line[0] == "m":
                self._moved(line, segment, offset)
                offset += line[2]
            else:
                try:
                    answers.append(self._APPLY[line[0]](self, *line[1:]))
                except JobNotFoundError as error:
                    answers.append(error)
                except KeyError:
                    raise StorageError(f"the journal holds a command '{line[0]}' of a newer version") from None
        return answers

    def place(self, entry: Entry) -> None:
        """Take an entry out of a snapshot."""
        self.entries[entry.id] = entry
        self._lies_in(entry)
        if entry.buried is not None:
            self.buried[entry.id] = entry
        elif entry.owner is None:
            self._wait(entry)
        else:
            self.leased[entry.id] = entry
            if entry.until is not None:
                heappush(self._leases, (entry.until, entry.id))

    def _sweep(self) -> None:
        """Return what nobody renewed, and bury what has outlived its time."""
        while (due := self.next_due()) is not None and due <= self.now:
            _, name = heappop(self._leases)
            self._give_back(self.leased[name], counted=True)
        while self.is_overdue(self.now):
            self._bury(self.entries[heappop(self._expiring)[1]], EXPIRED)
        remembered = self.acknowledged
        while remembered:
            name, moment = next(iter(remembered.items()))
            if len(remembered) <= REMEMBERED and moment > self.now - REMEMBERED_SECONDS:
                break
            del remembered[name]

    def _enqueue(self, line: list[Any], segment: int, offset: int) -> bool:
        _, name, entrypoint, priority, length, expires, created, checksum = line
        if name in self.entries or name in self.acknowledged:
            return False
        self.order += 1
        moment = self.now if created is None else created
        entry = self.entries[name] = Entry(name, entrypoint, priority, self.order, moment, expires)
        entry.segment, entry.offset, entry.length, entry.checksum = segment, offset, length, checksum
        self._lies_in(entry)
        self._wait(entry)
        return True

    def _wait(self, entry: Entry) -> None:
        heap = self._waiting.setdefault(entry.entrypoint, [])
        heappush(heap, (entry.priority, entry.order, entry.id))
        if self._is_stale(heap):
            heap[:] = [(each.priority, each.order, each.id) for each in self._in_line(entry.entrypoint)]
            heapify(heap)
        if entry.expires is not None:
            heappush(self._expiring, (entry.expires, entry.id))
            if self._is_stale(self._expiring):
                self._expiring = [(each.expires, each.id) for each in self._in_line() if each.expires is not None]
                heapify(self._expiring)

    def _in_line(self, entrypoint: str | None = None) -> Iterator[Entry]:
        waiting = (entry for entry in self.entries.values() if entry.is_waiting)
        return (entry for entry in waiting if entrypoint is None or entry.entrypoint == entrypoint)

    def _is_stale(self, heap: list[Any]) -> bool:
        """Whether most of a heap is about what has left it otherwise; a message leaves several items behind."""
        return len(heap) > 2 * len(self.entries) + STALE_AT_MOST

    def _first(self, entrypoint: str) -> Entry | None:
        """Return what is next in line there, dropping what has left the line otherwise."""
        heap = self._waiting.get(entrypoint)
        while heap:
            entry = self.entries.get(heap[0][2])
            if entry is not None and entry.is_waiting and entry.order == heap[0][1]:
                return entry
            heappop(heap)
        return None

    def _next(self, entrypoint: str | None) -> Entry | None:
        if entrypoint is not None:
            return self._first(entrypoint)
        firsts = [entry for entry in map(self._first, list(self._waiting)) if entry is not None]
        return min(firsts, key=lambda entry: (entry.priority, entry.order)) if firsts else None

    def _claim(self, count: int, owner: str, seconds: float | None, entrypoint: str | None) -> list[Entry]:
        claimed: list[Entry] = []
        while len(claimed) < count and (entry := self._next(entrypoint)) is not None:
            heappop(self._waiting[entry.entrypoint])
            entry.owner = owner
            self.leased[entry.id] = entry
            self._lease(entry, seconds)
            claimed.append(entry)
        return claimed

    def _lease(self, entry: Entry, seconds: float | None) -> None:
        entry.beat = self.now
        entry.until = None if seconds is None else self.now + seconds
        if entry.until is not None:
            heappush(self._leases, (entry.until, entry.id))
            if self._is_stale(self._leases):
                self._leases = [(each.until, each.id) for each in self.leased.values() if each.until is not None]
                heapify(self._leases)

    def _ack(self, name: str) -> None:
        entry = self._found(name)
        self._forget(entry)
        if entry.buried is None:
            self.acknowledged[name] = self.now

    def _forget(self, entry: Entry) -> None:
        del self.entries[entry.id]
        self.leased.pop(entry.id, None)
        self.buried.pop(entry.id, None)
        self._left_segment(entry)

    def _lies_in(self, entry: Entry) -> None:
        self.in_segment[entry.segment] = self.in_segment.get(entry.segment, 0) + entry.length + LINE_BYTES

    def _left_segment(self, entry: Entry) -> None:
        left = self.in_segment[entry.segment] - entry.length - LINE_BYTES
        if left:
            self.in_segment[entry.segment] = left
        else:
            del self.in_segment[entry.segment]

    def _give_back(self, entry: Entry, counted: bool) -> None:
        self.leased.pop(entry.id, None)
        entry.owner = entry.beat = entry.until = None
        entry.redelivered = True
        entry.deliveries += counted
        if counted and self.delivery_limit is not None and entry.deliveries > self.delivery_limit:
            self._bury(entry, DELIVERY_LIMIT)
        else:
            self._wait(entry)

    def _return(self, name: str, counted: bool, owner: str | None) -> None:
        entry = self._found(name, owner)
        if entry.owner is not None:
            self._give_back(entry, counted)

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
        self._lease(entry, seconds)

    def _renew_all(self, owner: str, seconds: float) -> int:
        mine = [entry for entry in self.leased.values() if entry.owner == owner]
        for entry in mine:
            self._lease(entry, seconds)
        return len(mine)

    def _rescue(self, timeout: float, owner: str | None) -> int:
        stale = [
            entry
            for entry in self.leased.values()
            if (owner is None or entry.owner == owner) and (entry.beat is None or entry.beat <= self.now - timeout)
        ]
        for entry in stale:
            self._give_back(entry, counted=True)
        return len(stale)

    def _purge(self) -> int:
        gone = [entry for entry in self.entries.values() if entry.is_waiting]
        for entry in gone:
            self._forget(entry)
        self._waiting.clear()
        self._expiring.clear()
        return len(gone)

    def _take(self, count: int, entrypoint: str | None) -> list[Entry]:
        taken: list[Entry] = []
        while len(taken) < count and (entry := self._next(entrypoint)) is not None:
            heappop(self._waiting[entry.entrypoint])
            self._forget(entry)
            self.acknowledged[entry.id] = self.now
            taken.append(entry)
        return taken

    def _nothing(self) -> None:
        """The sweep before every batch was all that was asked for."""

    def _configure(self, delivery_limit: int | None, keeps_buried: bool) -> None:
        self.delivery_limit, self.keeps_buried = delivery_limit, keeps_buried

    def _mark_all_redelivered(self) -> None:
        """Flag everything: after a power failure the last claims may be missing from the journal."""
        for entry in self.entries.values():
            entry.redelivered = True

    def _moved(self, line: list[Any], segment: int, offset: int) -> None:
        entry = self.entries.get(line[1])
        if entry is None:
            return
        self._left_segment(entry)
        entry.segment, entry.offset = segment, offset
        self._lies_in(entry)

    def _found(self, name: str, owner: str | None = None) -> Entry:
        entry = self.entries.get(name)
        if entry is None or (owner is not None and entry.owner != owner):
            raise JobNotFoundError(name)
        return entry

    _APPLY: ClassVar[dict[str, Callable[..., Any]]] = {
        "?": _claim,
        "t": _take,
        "s": _nothing,
        "-": _ack,
        "<": _return,
        "!": _bury_by_id,
        "~": _renew,
        "*": _renew_all,
        "^": _rescue,
        "0": _purge,
        "=": _configure,
        "d": _mark_all_redelivered,
    }

    def sparse(self, before: int, bytes_live: int) -> Iterator[Entry]:
        """Yield what lies in segments under ``before`` that hold fewer than ``bytes_live`` needed bytes."""
        thin = {number for number, live in self.in_segment.items() if number < before and live < bytes_live}
        return (entry for entry in self.entries.values() if entry.segment in thin)
