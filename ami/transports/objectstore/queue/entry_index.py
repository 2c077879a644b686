"""The messages of one queue, indexed by what is next: in line, at the end of a lease, at an expiry."""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from ami.transports.objectstore.queue.entry import Entry

#: A heap may hold so many stale items, however few messages there are.
STALE_AT_MOST = 64

#: What a message takes in its segment beside its payload, about.
LINE_BYTES = 100


class EntryIndex:
    """The messages, and heaps over them. A heap's item is stale once its message has changed otherwise."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.buried: dict[str, Entry] = {}
        self.leased: dict[str, Entry] = {}
        #: How many bytes of each segment of the journal are still needed.
        self.in_segment: dict[int, int] = {}
        self.acknowledged: OrderedDict[str, float] = OrderedDict()
        self._waiting: dict[str, list[tuple[int, int, str]]] = {}
        self._leases: list[tuple[float, str]] = []
        self._expiring: list[tuple[float, str]] = []

    def depth(self) -> int:
        """Return how many messages wait to be delivered."""
        return len(self.entries) - len(self.leased) - len(self.buried)

    def has_work(self, moment: float, entrypoint: str | None = None) -> bool:
        """Return whether a claim at ``moment`` would find a message, counting leases that have ended by then."""
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
        """Whether a waiting message has expired by ``moment``."""
        expiring = self._expiring
        while expiring and expiring[0][0] <= moment:
            entry = self.entries.get(expiring[0][1])
            if entry is not None and entry.is_waiting and entry.expires == expiring[0][0]:
                return True
            heappop(expiring)
        return False

    def next_expiry(self) -> float | None:
        """Return the moment at which the next waiting message expires, None when none does."""
        expiring = self._expiring
        while expiring:
            entry = self.entries.get(expiring[0][1])
            if entry is not None and entry.is_waiting and entry.expires == expiring[0][0]:
                return entry.expires
            heappop(expiring)
        return None

    def sparse(self, before: int, bytes_live: int) -> Iterator[Entry]:
        """Yield the messages in segments under ``before`` that hold fewer than ``bytes_live`` needed bytes."""
        thin = {number for number, live in self.in_segment.items() if number < before and live < bytes_live}
        return (entry for entry in self.entries.values() if entry.segment in thin)

    def place(self, entry: Entry) -> None:
        """Add an entry of a snapshot."""
        self.entries[entry.id] = entry
        self._add_to_segment(entry)
        if entry.buried is not None:
            self.buried[entry.id] = entry
        elif entry.owner is None:
            self._wait(entry)
        else:
            self.leased[entry.id] = entry
            if entry.until is not None:
                heappush(self._leases, (entry.until, entry.id))

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
        """Whether most items of a heap are stale; a message leaves several items behind."""
        return len(heap) > 2 * len(self.entries) + STALE_AT_MOST

    def _first(self, entrypoint: str) -> Entry | None:
        """Return the next message in line there, dropping stale items."""
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

    def _lease(self, entry: Entry, now: float, seconds: float | None) -> None:
        entry.beat = now
        entry.until = None if seconds is None else now + seconds
        if entry.until is not None:
            heappush(self._leases, (entry.until, entry.id))
            if self._is_stale(self._leases):
                self._leases = [(each.until, each.id) for each in self.leased.values() if each.until is not None]
                heapify(self._leases)

    def _forget(self, entry: Entry) -> None:
        del self.entries[entry.id]
        self.leased.pop(entry.id, None)
        self.buried.pop(entry.id, None)
        self._remove_from_segment(entry)

    def _add_to_segment(self, entry: Entry) -> None:
        self.in_segment[entry.segment] = self.in_segment.get(entry.segment, 0) + entry.length + LINE_BYTES

    def _remove_from_segment(self, entry: Entry) -> None:
        left = self.in_segment[entry.segment] - entry.length - LINE_BYTES
        if left:
            self.in_segment[entry.segment] = left
        else:
            del self.in_segment[entry.segment]
