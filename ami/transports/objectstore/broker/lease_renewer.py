"""The background thread of a connection that consumes: it renews leases and requeues the messages of dead consumers."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.consumer_registry import ConsumerRecord
from ami.transports.objectstore.broker.expiry import mark_requeued
from ami.transports.objectstore.queue.commands import RenewAll, Rescue
from ami.transports.objectstore.storage.errors import JQueueError

log = logging.getLogger(__name__)

#: An auto-delete queue is deleted so long after its owner's record disappeared: a new owner may not consume yet.
ORPHANED_QUEUE_SECONDS = 60.0

#: How often a local broker is searched for consumers whose process died.
SEARCH_SECONDS = 2.0


def requeue_leases(broker: BrokerStorage, consumer: ConsumerRecord) -> int:
    """Requeue what a consumer holds, flagged as redelivered; return of how many queues."""
    queues = [queue for queue in consumer.queues if queue in broker.declarations.current().queues]
    for queue in queues:
        broker.store(queue).commit([Rescue(0.0, consumer.owner)], durable=False)
        broker.notifier(queue).notify()
        mark_requeued(broker, queue)
    return len(queues)


class LeaseRenewer:
    """Runs in its own thread: a solo worker's loop blocks while its task runs, and its lease must not end."""

    def __init__(self, broker: BrokerStorage, owner: str, lease_seconds: float, wake: Callable[[], None]) -> None:
        self._broker = broker
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._wake = wake
        #: How many rounds are done, failed ones included.
        self.turns = 0
        self._leased_queues: set[str] = set()
        self._counts: dict[str, int] = {}
        #: False from an unexpected error until the next beat.
        self._cleans_up = True
        self._orphaned_since: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def renew_queue(self, queue: str) -> None:
        """Renew, from now on, what this connection leases from ``queue``."""
        self._leased_queues.add(queue)
        self._start()

    def set_consumers(self, counts: dict[str, int]) -> None:
        """Announce how many consumers this connection has per queue."""
        with self._lock:
            self._counts = counts
            self._announce()
        if counts:
            self._start()
            self._broker.timekeeper.join(self._owner)
        else:
            self._broker.timekeeper.leave(self._owner)

    def stop(self) -> None:
        """End the thread and remove this connection from the registry."""
        self._stopped.set()
        self._broker.timekeeper.leave(self._owner)
        if self._thread is not None:
            self._thread.join(5)
        with self._lock:
            self._broker.consumers.remove(self._owner)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="objectstore-lease-renewer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        beat_seconds = self._lease_seconds / 3
        pause = min(beat_seconds, SEARCH_SECONDS) if self._broker.is_local else beat_seconds
        elapsed = 0.0
        while not self._stopped.wait(pause):
            elapsed += pause
            is_beat = elapsed >= beat_seconds
            if is_beat:
                elapsed = 0.0
                self._renew()
            if is_beat or self._cleans_up:
                self._cleans_up = self._attempt(self._clean_up)
            self.turns += 1

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Do some work; return False after an error that is no failure of the storage.

        The thread must outlive whatever a storage, a record or a queue does: without it, the messages of a living
        worker are requeued. The next beat tries again; a lease outlives two that fail.
        """
        try:
            work()
        except JQueueError as error:
            log.warning("Renewing leases failed: %s", error, extra={"consumer": self._owner})
        except Exception as error:
            log.exception("Renewing leases failed: %r", error, extra={"consumer": self._owner})
            return False
        return True

    def _renew(self) -> None:
        """Renew the leases of each queue: one that fails does not end those of the others."""
        for queue in list(self._leased_queues):
            self._attempt(partial(self._renew_in, queue))
        self._attempt(self._announce_again)

    def _renew_in(self, queue: str) -> None:
        if not self._broker.declarations.has_queue(queue):
            # Deleted; looking into it would make its folder again.
            self._leased_queues.discard(queue)
            return
        store = self._broker.store(queue)
        with store.lock:
            is_held = any(entry.owner == self._owner for entry in store.look().leased.values())
        if is_held:
            store.commit([RenewAll(self._owner, self._lease_seconds)], durable=False)

    def _announce_again(self) -> None:
        with self._lock:
            self._announce()

    def _announce(self) -> None:
        if not self._stopped.is_set():
            self._broker.consumers.announce(self._owner, self._counts, self._lease_seconds)

    def _clean_up(self) -> None:
        self._broker.use_room()
        self._broker.close_deleted_queues()
        records = self._broker.consumers.all()
        for record in records:
            if record.owner != self._owner and not self._broker.consumers.is_alive(record):
                self._requeue_orphans(record)
        if self._broker.is_local or any(record.owner == self._owner for record in records):
            alive = {record.owner for record in records if self._broker.consumers.is_alive(record)}
            self._broker.timekeeper.observe(alive, self._lease_seconds)
            self._delete_orphaned_queues(alive)

    def _requeue_orphans(self, consumer: ConsumerRecord) -> None:
        """Requeue what a dead process held; on a remote storage its leases end on their own."""
        queues = ", ".join(consumer.queues)
        log.warning(
            "Consumer died; requeueing its messages: %s on %s",
            consumer.owner,
            queues,
            extra={"consumer": consumer.owner, "queues": queues},
        )
        if self._broker.is_local:
            requeue_leases(self._broker, consumer)
        self._broker.consumers.remove(consumer.owner)

    def _delete_orphaned_queues(self, alive: set[str]) -> None:
        """Delete auto-delete queues whose connection is dead: their replies have no reader any more."""
        queues = self._broker.declarations.current().queues
        orphaned = {name for name, record in queues.items() if record.owner and record.owner not in alive}
        self._orphaned_since = {name: self._orphaned_since.get(name, time.monotonic()) for name in orphaned}
        for name, since in self._orphaned_since.items():
            if time.monotonic() - since > ORPHANED_QUEUE_SECONDS:
                self._broker.delete(name)
