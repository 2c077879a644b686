"""Publishers and workers as they would run on machines of their own, in this process: the real transport under each."""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.pidbox import Mailbox

from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import Site
from ami.transports.objectstore.broker.transport import Transport
from ami.transports.objectstore.cost.ledger import Ledger
from ami.transports.objectstore.storage.port import Storage

#: Where Celery's workers send events; nobody listens unless they gossip or are watched.
EVENTS = Exchange("celeryev", type="topic")


@dataclass(frozen=True)
class Elsewhere(Address):
    """The address of a storage that hears no bells: they lie on another machine."""

    @property
    def bells(self) -> Path:
        """A folder that no other process has."""
        return Path(self.path)


class OnItsOwn(Transport):
    """The transport, on the site that it was given."""

    @property
    def site(self) -> Site:
        """The site of this connection's process."""
        site: Site = self.client.transport_options["site"]
        return site


class Process:
    """One process with one connection; ``ledger`` has what it asked for."""

    def __init__(self, storage: Storage, bells: str, lease_seconds: float) -> None:
        self.ledger = Ledger(storage)
        options = {"site": Site(Elsewhere("memory", "", bells), self.ledger), "visibility_timeout": lease_seconds}
        self.connection = Connection("memory://", transport=OnItsOwn, transport_options=options)
        self.channel = self.connection.channel()

    def publish(self, queue: Queue, body: bytes, times: int = 1) -> None:
        """Publish tasks' messages, one after the other."""
        for _ in range(times):
            self._producer.publish(
                body, exchange=queue.exchange, routing_key=queue.routing_key, content_encoding="utf-8", retry=False
            )

    def declare_events(self) -> None:
        """Declare what a worker sends its events to; nobody listens to them."""
        EVENTS(self.channel).declare()

    def send_heartbeat(self) -> None:
        """Publish the event that is a worker's sign of life."""
        self._producer.publish({"type": "worker-heartbeat"}, exchange=EVENTS, routing_key="worker.heartbeat")

    @property
    def _producer(self) -> Producer:
        return Producer(self.channel, auto_declare=False)


class Worker(Process):
    """A worker that consumes its queues and the one that remote control reaches it by."""

    def __init__(
        self, storage: Storage, bells: str, lease_seconds: float, queues: Sequence[Queue], prefetch: int
    ) -> None:
        super().__init__(storage, bells, lease_seconds)
        self.queues = queues
        self.received: list[Any] = []
        self.channel.basic_qos(0, prefetch, False)
        Consumer(self.channel, queues, on_message=self.received.append).consume()
        node = Mailbox("celery", type="fanout").Node(f"worker@{uuid.uuid4().hex}", channel=self.connection.channel())
        node.listen()

    @property
    def keeper_turns(self) -> int:
        """How many beats of its keeper are over."""
        turns: int = self.connection.transport._keeping().turns
        return turns

    def turn(self) -> None:
        """Do what one turn of a worker's loop does: poll where that is due, claim, and settle."""
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0)

    def receive(self, count: int, seconds: float) -> None:
        """Return when it has so many messages; it finds them when it polls. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while len(self.received) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.received)} of {count} messages came within {seconds:g} s")
            self.turn()
            time.sleep(0.01)

    def acknowledge_all(self) -> None:
        """Acknowledge one message after the other, each by itself, as tasks end, and poll for nothing meanwhile."""
        for message in self.received:
            message.ack()
            self.channel.flush()
        self.received.clear()


def task_queue(name: str) -> Queue:
    """Return a queue as Celery declares one."""
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


@contextmanager
def bells() -> Iterator[Any]:
    """Give a function that returns a new folder for a process's bells; all are removed afterwards."""
    with TemporaryDirectory(prefix="objectstore-cost-") as top:
        yield lambda: f"{top}/{uuid.uuid4().hex}"
