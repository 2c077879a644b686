"""Delayed messages of a broker: a journal for each stretch of time, which nobody reads before that time comes."""

import math
import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ami.transports.objectstore.broker.notify import Notifier
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.factory import open_folder, open_store
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import CASConflictError, DamageError
from ami.transports.objectstore.storage.port import Storage
from ami.transports.objectstore.storage.reserve import Reserve

#: The folder, or the prefix of the keys, of all slots.
FOLDER = "delayed"

#: How many seconds a slot covers. A message moves from a wider to a narrower one, at most four times.
WIDTHS = (65_536, 4_096, 256, 16, 1)

#: A slot is opened this share of its width before it begins, and at most so long before.
LEAD_SHARE, LONGEST_LEAD_SECONDS = 0.125, 30.0

#: In a remote storage a slot is removed so long after its begin, because nothing can be deleted on a condition there.
REMOTE_GRACE_SECONDS = 120.0

#: The object that is written when a slot was added to a remote storage, and how long no other change is looked for.
CHANGED = "delayed-changed"
RELIST_SECONDS = 600.0

#: The stores of the last slots that were written to; their files are closed after each use.
STORES = 64

#: A slot that is opened within so many seconds may be removed between an append and its notification.
RING_SECONDS = 0.1


class Delayed(NamedTuple):
    """Something to do at ``due`` (epoch seconds).

    ``kind``: empty for a message, whose payload is its envelope. One that queues refused has the number of times, and
    after a colon the queue, where others of its queues have it.
    """

    id: str
    due: float
    payload: bytes
    kind: str = ""

    @property
    def only_queue(self) -> str | None:
        """The queue to which it goes alone; None for all to which it is routed."""
        _, colon, queue = self.kind.partition(":")
        return queue if colon else None

    def to(self, queue: str) -> "Delayed":
        return self._replace(kind=f"{self.kind or 0}:{queue}")

    def again(self, first_seconds: float, longest_seconds: float) -> "Delayed":
        """Return it due later, after twice as long as the last time."""
        tries, colon, queue = self.kind.partition(":")
        count = int(tries or 0)
        pause = min(first_seconds * 2.0 ** min(count, 60), longest_seconds)
        return self._replace(due=time.time() + pause, kind=f"{count + 1}{colon}{queue}")

    def enqueue(self) -> Enqueue:
        """Return what stores it in a slot. Its kind is a part of the id there: a retry may meet the first try."""
        return Enqueue(f"{self.kind}:{self.id}", self.payload, self.kind, created=self.due)

    @classmethod
    def load(cls, name: str, due: float, payload: bytes, kind: str) -> "Delayed":
        """Return what `enqueue` stored under ``name``."""
        return cls(name.removeprefix(f"{kind}:"), due, payload, kind)


class Slot(NamedTuple):
    """``width`` seconds from ``start`` (epoch seconds) on."""

    start: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.start:012d}-{self.width}"

    @property
    def opens(self) -> float:
        """From when on it is emptied, into narrower slots or queues."""
        return self.start - min(self.width * LEAD_SHARE, LONGEST_LEAD_SECONDS)

    @classmethod
    def parse(cls, name: str) -> "Slot | None":
        start, _, width = name.partition("-")
        if start.isdigit() and width.isdigit() and int(width) in WIDTHS:
            return cls(int(start), int(width))
        return None


def slot_for(due: float, now: float, below: float = math.inf) -> Slot:
    """Return the widest slot that contains ``due``, is not open at ``now``, and is narrower than ``below``.

    Where all of them are open, the slot of its second.
    """
    for width in WIDTHS:
        slot = Slot(int(due // width) * width, width)
        if width < below and slot.opens > now:
            return slot
    return Slot(int(due), 1)


class Wheel:
    """The slots of one broker. Thread-safe; writing to a slot reads nothing."""

    def __init__(self, storage: Storage, folder: Path | None, bell: Path, reserve: Reserve | None = None) -> None:
        """``folder``: the broker's, None where slots are in ``storage``. ``bell``: what the timekeeper listens to."""
        self.bell = bell
        self._storage, self._reserve = storage, reserve
        self._folder = folder / FOLDER if folder is not None else None
        self._notifier = Notifier(bell)
        self._stores: OrderedDict[Slot, Store] = OrderedDict()
        self._lock = threading.Lock()
        #: The slots that the timekeeper knows of, because this process has told it.
        self._announced: set[Slot] = set()
        #: In a remote storage: the version of `CHANGED`, until when it is believed, and the slots listed after it.
        self._listed: tuple[str, float, list[Slot]] | None = None

    def put(self, messages: Iterable[Delayed], *, durable: bool = True, below: float = math.inf) -> None:
        """Store messages in slots narrower than ``below``; return when they are on disk. Raises StorageError.

        Called again with the same ids after a failure, it stores nothing twice that is not due yet.
        """
        by_slot: dict[Slot, list[Delayed]] = {}
        began = time.time()
        for message in messages:
            by_slot.setdefault(self._slot_for(message.due, below), []).append(message)
        for slot, those in by_slot.items():
            try:
                self._append(slot, those, durable)
            except DamageError:
                # One damaged slot must not keep a wider one from being emptied, which would be repeated for the others.
                self._append_beside(slot, those, durable)
            if self._storage.is_remote and time.time() - began > REMOTE_GRACE_SECONDS / 2:
                # The slot may have been removed while this was written; a second copy is recognised by its id.
                self._append(self._slot_for(max(those[0].due, time.time())), those, durable)

    def _append_beside(self, slot: Slot, messages: Sequence[Delayed], durable: bool) -> None:
        """Store the messages of a damaged slot in narrower ones, or a second later."""
        if slot.width > 1:
            self.put(messages, durable=durable, below=slot.width)
        else:
            self._append(Slot(slot.start + 1, 1), messages, durable)

    def _slot_for(self, due: float, below: float = math.inf) -> Slot:
        now = time.time()
        slot = slot_for(due, now, below)
        # In a remote storage only a young slot is certain to stay while it is written to.
        return Slot(int(now), 1) if self._storage.is_remote and slot.start < now - 1 else slot

    def _append(self, slot: Slot, messages: Sequence[Delayed], durable: bool) -> None:
        store = self.store(slot)
        store.commit([one.enqueue() for one in messages], durable=durable)
        if self._folder is not None:
            store.close()  # Else the blocks of a removed slot would stay in use.
        now = time.time()
        if slot not in self._announced or slot.opens <= now + RING_SECONDS:
            self.ring()
            self._announced = {each for each in self._announced if each.opens > now} | {slot}

    def ring(self) -> None:
        """Let the timekeeper look for new slots: this machine's at once, another one's at its next poll."""
        self._notifier.notify()
        if self._storage.is_remote:
            stored = self._storage.read(CHANGED)
            content = uuid.uuid4().bytes
            with suppress(CASConflictError):  # Another one did so after the read, and with it after our append.
                if stored is None:
                    self._storage.create(CHANGED, content)
                else:
                    self._storage.replace(CHANGED, content, stored.version)

    def slots(self) -> list[Slot]:
        """Return every slot that exists, the first to begin first, and the widest of those.

        A remote storage is listed only when a slot was added: listing costs as much as writing, reading a tenth.
        """
        if not self._storage.is_remote:
            return self._list()
        stored = self._storage.read(CHANGED)
        version = stored.version if stored else ""
        listed = self._listed
        if listed is None or listed[0] != version or time.monotonic() > listed[1]:
            listed = self._listed = version, time.monotonic() + RELIST_SECONDS, self._list()
        return listed[2]

    def _list(self) -> list[Slot]:
        found = (Slot.parse(name) for name in self._names())
        return sorted((slot for slot in found if slot is not None), key=lambda slot: (slot.opens, -slot.width))

    def _names(self) -> list[str]:
        if self._folder is None:
            prefix, suffix = f"{FOLDER}/", "/head"
            keys = (key for key in self._storage.list(prefix) if key.endswith(suffix))
            return [key.removeprefix(prefix).removesuffix(suffix) for key in keys]
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []

    def store(self, slot: Slot) -> Store:
        with self._lock:
            store = self._stores.get(slot)
            if store is None:
                store = self._stores[slot] = self._open(slot)
            self._stores.move_to_end(slot)
            # In memory, the lock of a store guards its removal: there is one for each slot.
            while self._folder is not None and len(self._stores) > STORES:
                self._stores.popitem(last=False)
            return store

    def _open(self, slot: Slot) -> Store:
        if self._folder is None:
            return open_store(self._storage, f"{FOLDER}/{slot.name}/")
        return open_folder(self._folder / slot.name, reserve=self._reserve)

    def remove(self, slot: Slot, store: Store) -> bool:
        """Remove a slot of which all was read and moved; return False where more was written meanwhile."""
        if self._storage.is_remote and time.time() < slot.start + REMOTE_GRACE_SECONDS:
            return False
        if not store.destroy_if_read():
            return False
        with self._lock:
            self._stores.pop(slot, None)
            self._listed = None
        return True
