"""Publishers and workers over a bucket in memory, each counting its requests, on a clock that only the caller moves."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from unittest.mock import patch

from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.pidbox import Mailbox

from ami import transports
from ami.transports.objectstore.broker import consumer_registry, declaration_store, transport
from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.lease_renewer import LeaseRenewer
from ami.transports.objectstore.broker.open_slots import OpenSlots
from ami.transports.objectstore.broker.timekeeper import Timekeeper
from ami.transports.objectstore.journal import objects
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.transports.request_counter import RequestCounter, Traffic

#: Longer than a copy of a head or of the declarations is believed, and shorter than a consumer's record is.
LONG_SECONDS = 50.0

#: Celery's workers send their events here.
EVENTS = Exchange("celeryev", type="topic")

#: How often a Celery worker sends its heartbeat event.
HEARTBEAT_SECONDS = 2.0


class Bucket(MemoryObjects):
    is_remote = True


class Clock:
    """Stands for the module `time` where polls are due, and where heads, declarations and records grow old."""

    def __init__(self) -> None:
        self.now = time.time()

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Requests(NamedTuple):
    """Requests by the kinds that services bill."""

    get: float = 0
    put: float = 0
    list: float = 0
    delete: float = 0

    @classmethod
    def of(cls, traffic: Traffic) -> "Requests":
        return cls(traffic.read, traffic.create + traffic.replace, traffic.list, traffic.delete)

    def plus(self, other: "Requests") -> "Requests":
        return Requests(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Requests":
        return Requests(*(number * factor for number in self))


class Process:
    """One process with one connection; ``counter`` has all its requests."""

    def __init__(self, connection: Connection, counter: RequestCounter) -> None:
        self.connection = connection
        self.counter = counter
        self.received: list[Any] = []

    def count(self, action: Callable[[], object]) -> Requests:
        """Return the requests that this process makes during an action."""
        before = self.counter.traffic
        action()
        return Requests.of(self.counter.traffic.since(before))

    def publish(self, queue: Queue, body: str = "x" * 700, **options: Any) -> None:
        Producer(self.connection.default_channel, auto_declare=False).publish(
            body, exchange=queue.exchange, routing_key=queue.routing_key, **options
        )

    def send_heartbeat(self) -> None:
        """Publish a Celery worker's heartbeat event."""
        Producer(self.connection.default_channel, auto_declare=False).publish(
            {"type": "worker-heartbeat"}, exchange=EVENTS, routing_key="worker.heartbeat"
        )

    def consume(self, queues: Sequence[Queue], prefetch: int = 1) -> None:
        """Consume as a worker does: its queues, and the one of remote control."""
        channel = self.connection.default_channel
        channel.basic_qos(0, prefetch, False)
        Consumer(channel, queues, on_message=self.received.append).consume()
        channel = self.connection.channel()
        Mailbox("celery", type="fanout").Node(f"worker@{uuid.uuid4().hex}", channel=channel).listen()

    def turn(self) -> None:
        """Do one turn of a worker's loop: poll where that is due."""
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0)

    def poll(self) -> None:
        """Poll now, and take all messages that the prefetch count allows."""
        self.connection.transport._poll_at = 0.0
        while True:
            try:
                self.connection.drain_events(timeout=0)
            except TimeoutError:
                return

    def acknowledge_all(self) -> None:
        """Acknowledge the messages one by one, as tasks end."""
        while self.received:
            self.received.pop(0).ack()
            self.connection.default_channel.flush()

    def look_for_delayed(self) -> None:
        """Do one turn of the timekeeper."""
        OpenSlots(self.connection.transport.broker).work(threading.Event())

    def beat(self) -> None:
        """Do one beat of the lease renewer."""
        renewer = self.connection.transport._get_lease_renewer()
        renewer._renew()
        renewer._clean_up()


@contextmanager
def clock() -> Iterator[Clock]:
    with ExitStack() as stack:
        standing = Clock()
        for module in (objects, declaration_store, consumer_registry, transport):
            stack.enter_context(patch.object(module, "time", standing))
        # A beat happens when `Process.beat` is called.
        stack.enter_context(patch.object(LeaseRenewer, "_start", lambda _: None))
        stack.enter_context(patch.object(Timekeeper, "join", lambda *_: None))
        yield standing


@contextmanager
def counted_processes(bucket: Bucket, *names: str) -> Iterator[list[Process]]:
    """Connect as processes that share the bucket would, and count the requests of each."""
    transports.register()
    counters = {name: RequestCounter(bucket) for name in names}
    brokers = {name: BrokerStorage(Address("memory", name, ""), counter) for name, counter in counters.items()}
    with patch.object(transport, "open_broker_storage", lambda address: brokers[address.bucket]):
        connections = [Connection(f"objectstore+memory://{name}") for name in names]
        for connection in connections:
            connection.connect()
        yield [Process(*each) for each in zip(connections, counters.values(), strict=True)]
        for connection in connections:
            connection.release()


def task_queue(name: str) -> Queue:
    """Return a queue as Celery declares one."""
    return Queue(name, Exchange(name, type="direct"), routing_key=name)
