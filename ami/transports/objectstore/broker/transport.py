"""The transport that kombu finds under ``objectstore+file://``, ``+memory://``, ``+s3://``, ``+gs://``, ``+az://``."""

import os
import socket
import threading
import time
import uuid
from functools import cached_property
from typing import Any

from amqp.exceptions import AMQPError, RecoverableConnectionError
from kombu.exceptions import ChannelError, InconsistencyError
from kombu.transport import virtual

from ami.environment.url_login import masked_url
from ami.transports.objectstore.broker.address import PREFIX, Address
from ami.transports.objectstore.broker.broker_storage import BrokerStorage, open_broker_storage
from ami.transports.objectstore.broker.channel import Channel
from ami.transports.objectstore.broker.consumer_turns import claim_in_turn
from ami.transports.objectstore.broker.exclusive_queues import delete_queues
from ami.transports.objectstore.broker.lease_renewer import LeaseRenewer, requeue_leases
from ami.transports.objectstore.broker.notify import POLL_SECONDS as NOTIFY_POLL_SECONDS
from ami.transports.objectstore.broker.notify import Listener
from ami.transports.objectstore.storage.errors import CASConflictError, JobNotFoundError, StorageError

#: The pause between two polls of an idle remote storage, at first and at its longest.
POLL_SECONDS, LONGEST_POLL_SECONDS = 1.0, 8.0

#: How often a local storage is checked for leases that have ended; publishers notify of new work.
LEASE_CHECK_SECONDS = 1.0


class Transport(virtual.Transport):
    """A connection: its channels share one owner of leases, one listener and one lease renewer."""

    Channel = Channel
    driver_type = "objectstore"
    driver_name = "objectstore"
    # kombu leaves the address to `as_uri`; it does not hand over a URL that begins with objectstore+ unparsed.
    can_parse_url = True
    #: What follows ``objectstore+`` in the alias of this class, by which kombu finds it when it switches to a URL.
    scheme = ""
    # RecoverableConnectionError: a consumer whose queue was deleted. A worker connects anew, and declares it.
    # Not UnfitStorageError: a process on such a storage ends.
    connection_errors = (StorageError, CASConflictError, JobNotFoundError, OSError, RecoverableConnectionError)
    channel_errors = (AMQPError, ChannelError, InconsistencyError)
    # A refusal stays one: only a storage that failed is tried again.
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
        batch_publish=True,
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._pid = os.getpid()
        self._broker: tuple[int, BrokerStorage] | None = None
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.consuming_thread: int | None = None
        self._listener: Listener | None = None
        self._lease_renewer: LeaseRenewer | None = None
        self._loop: Any = None
        self._is_scheduled = False
        self._ready: set[str] = set()
        #: The queues that end with this connection.
        self.exclusive_queues: set[str] = set()
        self._poll_at = 0.0
        self._poll_seconds = POLL_SECONDS

    def driver_version(self) -> str:
        return "1"

    @property
    def is_one_process(self) -> bool:
        """Whether the processes of a pool would see another broker than this one."""
        return self._address.is_one_process

    @cached_property
    def _address(self) -> Address:
        client = self.client
        if not self.scheme:
            return Address.parse(client.hostname)
        # A copy of a switched connection has the prefix of the first URL before its host, and None for no host.
        host, prefix = client.hostname or "", f"{client.uri_prefix}+"
        while host.startswith(prefix):
            host = host.removeprefix(prefix)
        host = "" if host == "None" else host
        path = None if client.virtual_host == "/" else client.virtual_host
        return Address.of_switched(self.scheme, host, path, client.alt)

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """None: a memory without a name is not called localhost."""
        return {}

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the URL; it has no password, or is refused."""
        try:
            return f"{PREFIX}{self._address.url}"
        except ValueError:
            return uri if include_password else masked_url(uri, mask)

    @property
    def broker(self) -> BrokerStorage:
        """The storage as this process opened it: a forked child does not use its parent's."""
        if self._broker is None or self._broker[0] != os.getpid():
            self._broker = os.getpid(), open_broker_storage(self._address)
        return self._broker[1]

    def establish_connection(self) -> Any:
        """Raises ValueError for a URL that names no storage, UnfitStorageError for one that keeps no promise.

        StorageError when it does not answer.
        """
        self.broker.backoff.check()
        self.broker.declarations.current(fresh=True)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close every channel, which requeues what was not acknowledged."""
        if self.is_inherited:
            return
        try:
            super().close_connection(connection)
            delete_queues(self.broker, self.exclusive_queues)
        finally:
            # Also when the storage is unreachable and nothing can be requeued: the leases end on their own.
            renewer, self._lease_renewer, listener, self._listener = self._lease_renewer, None, self._listener, None
            if listener is not None:
                listener.close()
            if renewer is not None:
                renewer.stop()

    @property
    def is_inherited(self) -> bool:
        """Whether this is the parent's connection in a forked child: its messages are the parent's."""
        return os.getpid() != self._pid

    # Called by the channels.

    def consumers_changed(self) -> None:
        """Listen for the queues that are consumed now, and announce their consumers."""
        counts: dict[str, int] = {}
        for channel in self.channels:
            for consumer in channel.consumers:
                counts[consumer.queue] = counts.get(consumer.queue, 0) + 1
        listener = self._get_listener()
        for queue in counts:
            listener.watch(queue, self.broker.notifier_path(queue))
        for queue in listener.watched - set(counts):
            listener.unwatch(queue)
        with self.broker.backoff.watched():
            self._get_lease_renewer().set_consumers(counts)

    def renew_leases(self, queue: str) -> None:
        """Renew, from now on, the leases of this connection in ``queue``."""
        self._get_lease_renewer().renew_queue(queue)

    def mark_ready(self, queue: str) -> None:
        """Claim from a queue at the next opportunity: a message was settled, or a consumer was added."""
        self._ready.add(queue)
        self._schedule_pump()

    def _schedule_pump(self) -> None:
        """Settle and deliver before the event loop waits again, once per turn of the loop.

        Not by ``call_soon``: the loop would wait before it runs what a delivery has scheduled in turn. A solo pool runs
        the task within its delivery and schedules the acknowledgement, so each next task started up to a second late.
        """
        if self._loop is not None and not self._is_scheduled and threading.get_ident() == self.consuming_thread:
            self._is_scheduled = True
            self.wake()

    def wake(self) -> None:
        """Let the consuming thread check its queues; from any thread."""
        if self._listener is not None:
            self._listener.wake()

    def _get_listener(self) -> Listener:
        if self._listener is None:
            self._listener = Listener()
        return self._listener

    def requeue_leases(self, owner: str) -> int:
        """Requeue what the consumers of another connection hold; return of how many queues.

        For a process that is frozen: of one that has ended, the other consumers requeue it themselves.
        """
        records = [record for record in self.broker.consumers.all() if record.owner == owner]
        return sum(requeue_leases(self.broker, record) for record in records)

    def _get_lease_renewer(self) -> LeaseRenewer:
        if self._lease_renewer is None:
            seconds = self.client.transport_options.get("visibility_timeout", Channel.visibility_timeout)
            self._lease_renewer = LeaseRenewer(self.broker, self.owner, float(seconds), self.wake)
        return self._lease_renewer

    # Without an event loop.

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # noqa: ARG002
        """Deliver one message, as AMQP does; wait for it up to ``timeout`` seconds. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._pump(1):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no message came in time")
            self._get_listener().wait(self._wait_seconds(left))

    def _wait_seconds(self, left: float | None) -> float:
        pause = max(0.0, min(self._poll_at - time.monotonic(), LEASE_CHECK_SECONDS))
        return pause if left is None else min(pause, left)

    # With an event loop.

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:  # noqa: ARG002
        """Deliver messages at every notification and at every turn of the loop."""
        listener = self._get_listener()
        self._loop, self.consuming_thread = loop, threading.get_ident()
        for fd in listener.filenos:
            loop.add_reader(fd, self._pump)
        loop.on_tick.add(self._tick)
        if listener.can_listen:
            loop.call_repeatedly(LEASE_CHECK_SECONDS, self._poll)  # The tick that follows wakes the loop, if need be.
        else:
            loop.call_repeatedly(NOTIFY_POLL_SECONDS, self.wake)
        self.wake()

    def on_readable(self, fd: int) -> None:  # noqa: ARG002
        self._pump()

    def _tick(self) -> None:
        """Wake the loop when work is due that no event announced: the prefetch count was raised.

        A message delivered here could wait: a pool's callback, which runs at the same point, may already have run.
        """
        if any(channel.may_consume(self._ready) for channel in self.channels):
            self.wake()

    # Delivering.

    def _pump(self, limit: int | None = None) -> int:
        with self.broker.backoff.watched():
            return self._pump_once(limit)

    def _pump_once(self, limit: int | None) -> int:
        self.consuming_thread, self._is_scheduled = threading.get_ident(), False
        self._ready |= self._get_listener().notified()
        self._poll()
        for channel in list(self.channels):
            channel.cancel_consumers_of_deleted(self._ready)
        if limit is None or all(channel.next_turn is None for channel in self.channels):
            claim_in_turn(self.channels, self._ready)
        for channel in list(self.channels):
            channel.flush()
        delivered = self._deliver(limit)
        if delivered:
            # There may be more work.
            self._poll_seconds = POLL_SECONDS
            self._poll_at = min(self._poll_at, time.monotonic() + POLL_SECONDS)
        return delivered

    def _deliver(self, limit: int | None) -> int:
        """Deliver claimed messages, to the consumer that was served least recently first; return how many."""
        delivered = 0
        while limit is None or delivered < limit:
            turns = [(turn, channel) for channel in self.channels if (turn := channel.next_turn) is not None]
            if not turns:
                break
            delivered += 1
            min(turns, key=lambda each: each[0])[1].deliver_next()
        return delivered

    def _poll(self) -> None:
        """Mark queues ready where a lease has ended, and all of them when a poll of a remote storage is due."""
        if time.monotonic() < self._poll_at:
            return
        queues = {consumer.queue for channel in self.channels for consumer in channel.consumers}
        if self.broker.storage.is_remote:
            self._ready |= queues
            self._poll_at = time.monotonic() + self._poll_seconds
            self._poll_seconds = min(1.5 * self._poll_seconds, LONGEST_POLL_SECONDS)
            return
        self._poll_at = time.monotonic() + LEASE_CHECK_SECONDS
        self._ready |= {queue for queue in queues if self.broker.store(queue).is_due()}


class FileTransport(Transport):
    """``objectstore+file://``, when kombu switches to it from another URL."""

    scheme = "file"


class MemoryTransport(Transport):
    """``objectstore+memory://``, as `FileTransport`."""

    scheme = "memory"


class S3Transport(Transport):
    """``objectstore+s3://``, as `FileTransport`."""

    scheme = "s3"


class GSTransport(Transport):
    """``objectstore+gs://``, as `FileTransport`."""

    scheme = "gs"


class AzureTransport(Transport):
    """``objectstore+az://``, as `FileTransport`."""

    scheme = "az"
