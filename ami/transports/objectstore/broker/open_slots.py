"""Empties the open slots of the wheel: wide ones into narrower ones, those of a second into queues."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.cascade import MOVED, Cascade
from ami.transports.objectstore.broker.dead_letters import DAMAGED
from ami.transports.objectstore.broker.expiry import sweep_or_mark
from ami.transports.objectstore.broker.expiry_marks import SWEEP
from ami.transports.objectstore.broker.firing import fire
from ami.transports.objectstore.broker.wheel import Delayed, Slot
from ami.transports.objectstore.queue.commands import Ack, Bury, Enqueue
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError

log = logging.getLogger(__name__)

#: So much is fired together, and then removed from its slot.
AT_ONCE, BYTES_AT_ONCE = 500, 2 * 1024**2

#: A message that no queue takes is tried again after so long, then after twice as long, at most an hour.
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 3600.0

#: A slot that cannot be read is tried again after so long.
DAMAGED_SLOT_SECONDS = 30.0

#: A slot to which something was written while it was emptied is looked at again after so long.
AGAIN_SECONDS = 0.02


class _Stopped(Exception):
    """The thread ends, or another process keeps the time now; it begins the slot again."""


class OpenSlots:
    """The part of the wheel whose time has come. Only one thread uses it.

    At each moment a message is in a slot or in its queues: it is removed from a slot when it is on disk at its next
    place. Killed between the two, the next timekeeper moves it again, and its id shows that it is there already.
    """

    def __init__(self, broker: BrokerStorage, term: Callable[[], int | None] = lambda: 0) -> None:
        """``term``: see `Election`; a process that was stopped may have been replaced."""
        self._broker = broker
        self._term = term
        self._begun: int | None = None
        self._wheel = broker.wheel
        self._put_off: dict[Slot, float] = {}
        #: Whether there was an open slot.
        self.is_active = False

    def work(self, stopped: threading.Event) -> float:
        """Move and fire all that is due; return the moment at which there is more (epoch seconds, or infinity)."""
        self._begun = self._term()
        following: list[float] = []
        slots: list[Slot] = []
        is_moved = True
        while is_moved and not stopped.is_set():
            is_moved, following, slots = False, [math.inf], self._wheel.slots()
            for slot in slots:
                if (opens := max(slot.opens, self._put_off.get(slot, 0.0))) > time.time():
                    following.append(opens)
                elif slot.width > 1 and not stopped.is_set():
                    is_moved |= self._guarded(partial(self._cascade, stopped=stopped), slot) == 0.0
        return min(self._fire_all(slots), *following, math.inf)

    def _guarded(self, work: Callable[[Slot], float], slot: Slot) -> float:
        """Do some work; a slot that cannot be read must not hold up the others."""
        try:
            return work(slot)
        except _Stopped:
            return math.inf
        except Exception as error:
            self._broker.log_once(f"Delayed messages cannot be read; trying again: {error}", slot=slot.name)
            self._put_off = {each: until for each, until in self._put_off.items() if until > time.time()}
            self._put_off[slot] = time.time() + DAMAGED_SLOT_SECONDS
            return self._put_off[slot]

    def _cascade(self, slot: Slot, stopped: threading.Event) -> float:
        """Move a wide slot's messages to narrower ones; return 0 if there were any, else infinity.

        It is read without keeping it in memory, and due messages are fired meanwhile.
        """
        store, before = self._wheel.store(slot), 0
        if self._broker.storage.is_remote:
            before = _moved_before(store)
        cascade = Cascade(partial(self._move_on, width=slot.width, stopped=stopped), before)
        store.stream(cascade)
        cascade.flush()
        is_new = cascade.count > before
        if is_new and self._broker.storage.is_remote:
            store.commit([Enqueue(f"{MOVED}:{cascade.count}", str(cascade.count).encode(), MOVED)])
        else:
            self._wheel.remove(slot, store)
        return 0.0 if is_new else math.inf

    def _move_on(self, messages: Sequence[Delayed], width: int, stopped: threading.Event) -> None:
        if stopped.is_set() or not self._is_current():
            raise _Stopped
        self._wheel.put(messages, below=width)
        self._fire_all(self._wheel.slots())

    def _is_current(self) -> bool:
        """Whether this process has kept the time since the work began."""
        return self._begun is not None and self._term() == self._begun

    def _fire_all(self, slots: Sequence[Slot]) -> float:
        """Fire what is due in the slots of a second; return when the next message there is due."""
        now = time.time()
        self.is_active = any(slot.opens <= now for slot in slots)
        due = [slot for slot in slots if slot.width == 1 and max(slot.opens, self._put_off.get(slot, 0.0)) <= now]
        return min((self._guarded(self._fire, slot) for slot in due), default=math.inf)

    def _fire(self, slot: Slot) -> float:
        """Fire what is due; return when the next message is, and now where some was: more may have been written."""
        store = self._wheel.store(slot)
        with store.lock:
            entries = store.look().entries
            waiting = [entry for entry in entries.values() if entry.is_waiting]
            if not entries and not self._wheel.remove(slot, store) and not self._broker.storage.is_remote:
                return time.time() + AGAIN_SECONDS
        now = time.time()
        due = [entry for entry in waiting if entry.created <= now]
        for part in _parts(sorted(due, key=lambda entry: (entry.created, entry.order))):
            self._fire_part(store, part)
        return now if due else min((entry.created for entry in waiting), default=math.inf)

    def _fire_part(self, store: Store, entries: Sequence[Entry]) -> None:
        messages = [message for entry in entries if (message := self._readable(store, entry)) is not None]
        if not self._is_current():
            raise _Stopped  # Another process may have fired them, and they may be done.
        fired = fire(self._broker, [message for message in messages if message.kind != SWEEP])
        if fired.refused:
            self._try_later(fired.refused)
        for message in messages:
            if message.kind == SWEEP:
                sweep_or_mark(self._broker, message.payload.decode())
        # What no queue could ever take stays in its slot, for the command ``check``.
        invalid = {message.enqueue().id for message in fired.invalid}
        names = [message.enqueue().id for message in messages]
        store.commit([Bury(name, DAMAGED) if name in invalid else Ack(name) for name in names], durable=False)

    def _readable(self, store: Store, entry: Entry) -> Delayed | None:
        """Return a message; one whose bytes are damaged stays in its slot, for the command ``check``."""
        try:
            return Delayed.load(entry.id, entry.created, store.payload(entry), entry.entrypoint)
        except StorageError as error:
            if error.cause is not None:
                raise
            log.error("Delayed message %s is damaged: %s", entry.id, error, extra={"message_id": entry.id})
            store.commit([Bury(entry.id, DAMAGED)], durable=False)
            return None

    def _try_later(self, messages: Sequence[Delayed]) -> None:
        """Keep messages that no queue takes. Their kind counts how often that was so."""
        self._broker.log_once("Delayed messages are kept: no queue takes them", message_id=messages[0].id)
        self._wheel.put([message.again(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS) for message in messages])


def _moved_before(store: Store) -> int:
    """Return how many messages of a slot were moved on, in a storage where it cannot be removed at once."""
    reading = Cascade(lambda _: None)
    store.stream(reading)
    return reading.moved


def _parts(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    part: list[Entry] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += entry.length
        if len(part) == AT_ONCE or size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part
