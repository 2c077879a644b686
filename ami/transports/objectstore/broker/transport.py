"""The transport that kombu finds under ``objectstore+file://``, ``+memory://``, ``+s3://``, ``+gs://``, ``+az://``."""

import os
import socket
import threading
import time
import uuid
from functools import cached_property
from typing import Any

from amqp.exceptions import AMQPError
from kombu.exceptions import ChannelError, InconsistencyError
from kombu.transport import virtual

from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import Site, open_site
from ami.transports.objectstore.broker.channel import Channel
from ami.transports.objectstore.broker.lease_renewer import Keeper
from ami.transports.objectstore.broker.notify import POLL_SECONDS as BELL_SECONDS
from ami.transports.objectstore.broker.notify import Ear
from ami.transports.objectstore.storage.errors import JQueueError

#: How often a remote storage is asked for work while there is none: at first, and at last.
POLL_SECONDS, LONGEST_POLL_SECONDS = 1.0, 8.0

#: How often a local one is looked at for leases that have ended; work itself rings a bell.
LOOK_SECONDS = 1.0


class Transport(virtual.Transport):
    """A connection: its channels share one owner of leases, one ear for bells, and one keeper."""

    Channel = Channel
    driver_type = "objectstore"
    driver_name = "objectstore"
    can_parse_url = False
    connection_errors = (JQueueError, OSError)
    channel_errors = (AMQPError, ChannelError, InconsistencyError)
    # What a broker refuses is refused again: only a storage that failed is worth another try.
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._pid = os.getpid()
        self._site: tuple[int, Site] | None = None
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.consuming_thread: int | None = None
        self._ear: Ear | None = None
        self._keeper: Keeper | None = None
        self._loop: Any = None
        self._is_scheduled = False
        self._ready: set[str] = set()
        self._poll_at = 0.0
        self._poll_seconds = POLL_SECONDS

    def driver_version(self) -> str:
        """Return what the log shows."""
        return "1"

    @property
    def is_one_process(self) -> bool:
        """Whether a pool of processes would see another broker than this one."""
        return self._address.is_one_process

    @cached_property
    def _address(self) -> Address:
        return Address.parse(self.client.hostname)

    @property
    def site(self) -> Site:
        """The storage, as this process opened it: a forked child does not use its parent's."""
        if self._site is None or self._site[0] != os.getpid():
            self._site = os.getpid(), open_site(self._address)
        return self._site[1]

    def establish_connection(self) -> Any:
        """Open the storage. Raises ValueError for a URL that names none, StorageError when it does not answer."""
        self.site.catalogue.current(fresh=True)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close every channel, which returns what was not acknowledged, and be gone."""
        if self.is_inherited:
            return
        try:
            super().close_connection(connection)
        finally:
            # Also when the storage is away and nothing can be returned: the leases end then.
            keeper, self._keeper, ear, self._ear = self._keeper, None, self._ear, None
            if ear is not None:
                ear.close()
            if keeper is not None:
                keeper.stop()

    @property
    def is_inherited(self) -> bool:
        """Whether this is the parent's connection, seen in a forked child: its messages are the parent's."""
        return os.getpid() != self._pid

    # What the channels tell.

    def consumers_changed(self) -> None:
        """Watch the bells of what is consumed now, and tell everybody."""
        counts: dict[str, int] = {}
        for channel in self.channels:
            for consumer in channel.consumers:
                counts[consumer.queue] = counts.get(consumer.queue, 0) + 1
        ear = self._listening()
        for queue in counts:
            ear.watch(queue, self.site.bell_path(queue))
        for queue in ear.watched - set(counts):
            ear.unwatch(queue)
        self._keeping().consuming(counts)

    def holds(self, queue: str) -> None:
        """Renew, from now on, the leases this connection has in ``queue``."""
        self._keeping().holding(queue)

    def expect(self, queue: str) -> None:
        """Look into a queue at the next opportunity: something was settled, or is consumed anew."""
        self._ready.add(queue)
        self.soon()

    def soon(self) -> None:
        """Settle and hand out before the event loop waits again, once for all that happens in this turn of it."""
        if self._loop is not None and not self._is_scheduled and threading.get_ident() == self.consuming_thread:
            self._is_scheduled = True
            self._loop.call_soon(self._scheduled)

    def wake(self) -> None:
        """Let the consuming thread look again; from any thread."""
        if self._ear is not None:
            self._ear.wake()

    def _listening(self) -> Ear:
        if self._ear is None:
            self._ear = Ear()
        return self._ear

    def _keeping(self) -> Keeper:
        if self._keeper is None:
            seconds = self.client.transport_options.get("visibility_timeout", Channel.visibility_timeout)
            self._keeper = Keeper(self.site, self.owner, float(seconds), self.wake)
        return self._keeper

    # Without an event loop.

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # noqa: ARG002
        """Hand out one message, as AMQP does; wait for it up to ``timeout`` seconds. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._pump(1):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no message came in time")
            self._listening().wait(self._wait_seconds(left))

    def _wait_seconds(self, left: float | None) -> float:
        pause = max(0.0, min(self._poll_at - time.monotonic(), LOOK_SECONDS))
        return pause if left is None else min(pause, left)

    # With an event loop.

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:  # noqa: ARG002
        """Hand out messages when a bell rings and at every turn of the loop."""
        ear = self._listening()
        self._loop, self.consuming_thread = loop, threading.get_ident()
        for fd in ear.filenos:
            loop.add_reader(fd, self._pump)
        loop.on_tick.add(self._tick)
        loop.call_repeatedly(LOOK_SECONDS if ear.hears else BELL_SECONDS, self._pump)
        self.wake()

    def on_readable(self, fd: int) -> None:  # noqa: ARG002
        """Do as when a bell rings."""
        self._pump()

    def _scheduled(self) -> None:
        self._is_scheduled = False
        self._pump()

    def _tick(self) -> None:
        """Let the loop come back at once when there is something to do that no event told of: prefetch has grown.

        What is handed out here would wait: a pool's callback, which runs at the same point, may have had its turn.
        """
        if any(channel.may_consume(self._ready) for channel in self.channels):
            self.wake()

    # Handing out.

    def _heard(self) -> None:
        self._ready |= self._listening().heard()

    def _pump(self, limit: int | None = None) -> int:
        self.consuming_thread = threading.get_ident()
        self._heard()
        self._look()
        handed_out = 0
        for channel in list(self.channels):
            handed_out += channel.pump(self._ready, None if limit is None else limit - handed_out)
        if handed_out:
            # Where there was work there may be more.
            self._poll_seconds = POLL_SECONDS
            self._poll_at = min(self._poll_at, time.monotonic() + POLL_SECONDS)
        return handed_out

    def _look(self) -> None:
        """Expect work where a lease has ended, and on a remote storage each time it is due to be asked."""
        if time.monotonic() < self._poll_at:
            return
        queues = {consumer.queue for channel in self.channels for consumer in channel.consumers}
        if self.site.storage.is_remote:
            self._ready |= queues
            self._poll_at = time.monotonic() + self._poll_seconds
            self._poll_seconds = min(1.5 * self._poll_seconds, LONGEST_POLL_SECONDS)
            return
        self._poll_at = time.monotonic() + LOOK_SECONDS
        self._ready |= {queue for queue in queues if self.site.store(queue).is_due()}
