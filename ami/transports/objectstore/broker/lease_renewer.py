"""What a connection that consumes must do while its tasks run: renew its leases, and clear up after the dead."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from ami.transports.objectstore.broker.broker_storage import Site
from ami.transports.objectstore.broker.consumer_registry import Record
from ami.transports.objectstore.broker.declarations import Layout
from ami.transports.objectstore.queue.commands import RenewAll, Rescue
from ami.transports.objectstore.storage.errors import JQueueError

log = logging.getLogger(__name__)

#: How long the owner of an auto-delete queue must be gone before the queue is deleted: it may not consume yet.
LEFT_SECONDS = 60.0

#: How often a folder is searched for connections whose process died.
SEARCH_SECONDS = 2.0


class Keeper:
    """A thread of its own: a solo worker's loop stands still while its task runs, and its lease must not end."""

    def __init__(self, site: Site, owner: str, lease_seconds: float, wake: Callable[[], None]) -> None:
        self._site = site
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._wake = wake
        #: How often it has renewed, or tried to, and cleared up.
        self.turns = 0
        self._holding: set[str] = set()
        self._counts: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def holding(self, queue: str) -> None:
        """Renew what this connection leases from ``queue`` from now on."""
        self._holding.add(queue)
        self._start()

    def consuming(self, counts: dict[str, int]) -> None:
        """Tell everybody which queues have how many consumers here."""
        with self._lock:
            self._counts = counts
            self._tell()
        if counts:
            self._start()

    def stop(self) -> None:
        """End the thread and withdraw."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(5)
        with self._lock:
            self._site.presences.withdraw(self._owner)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="objectstore-keeper", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        beat_seconds = self._lease_seconds / 3
        pause = min(beat_seconds, SEARCH_SECONDS) if self._site.is_local else beat_seconds
        elapsed = 0.0
        while not self._stopped.wait(pause):
            elapsed += pause
            try:
                if elapsed >= beat_seconds:
                    elapsed = 0.0
                    self._renew()
                self._clear_up()
            except JQueueError as error:
                # The next beat tries again; a lease outlives two that fail.
                log.warning("The leases of %s were not renewed: %s", self._owner, error)
            self.turns += 1

    def _renew(self) -> None:
        for queue in list(self._holding):
            store = self._site.store(queue)
            with store.lock:
                is_held = any(entry.owner == self._owner for entry in store.look().leased.values())
            if is_held:
                store.commit([RenewAll(self._owner, self._lease_seconds)], durable=False)
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        if not self._stopped.is_set():
            self._site.presences.tell(self._owner, self._counts, self._lease_seconds)

    def _clear_up(self) -> None:
        self._site.tidy()
        records = self._site.presences.all()
        for record in records:
            if record.owner != self._owner and not self._site.presences.is_alive(record):
                self._bury(record)
        if self._site.is_local or any(record.owner == self._owner for record in records):
            self._delete_left_queues({record.owner for record in records if self._site.presences.is_alive(record)})

    def _bury(self, record: Record) -> None:
        """Return at once what a dead process held; on a remote storage its leases end by themselves."""
        log.warning("%s is gone; what it held of %s goes back.", record.owner, ", ".join(record.queues))
        for queue in record.queues:
            if self._site.is_local and queue in self._site.catalogue.current().queues:
                self._site.store(queue).commit([Rescue(0.0, record.owner)], durable=False)
                self._site.bell(queue).ring()
        self._site.presences.withdraw(record.owner)

    def _delete_left_queues(self, alive: set[str]) -> None:
        """Delete auto-delete queues of connections that are gone: nobody reads their replies any more."""
        layout = self._site.catalogue.current()
        left = {name for name, record in layout.queues.items() if record.owner and record.owner not in alive}
        self._left = {name: self._left.get(name, time.monotonic()) for name in left}
        for name, since in self._left.items():
            if time.monotonic() - since > LEFT_SECONDS:
                self._site.catalogue.change(partial(Layout.without_queue, name=name))
                self._site.destroy(name)
