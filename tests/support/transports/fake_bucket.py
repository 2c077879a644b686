"""A memory that takes itself for a bucket, and a clock of the test's own for those who ask it what they know."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kombu import Connection

from ami import transports
from ami.transports.objectstore.broker import declaration_store, transport
from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.journal import objects
from ami.transports.objectstore.storage.memory import MemoryObjects
from ami.transports.objectstore.storage.request_counter import RequestCounter


class Bucket(MemoryObjects):
    is_remote = True


class Clock:
    """Stands for the module `time` where heads and layouts grow old."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def clock() -> Iterator[Clock]:
    standing = Clock()
    with patch.object(objects, "time", standing), patch.object(declaration_store, "time", standing):
        yield standing


@contextmanager
def counted_processes(bucket: Bucket, *names: str) -> Iterator[list[tuple[Connection, RequestCounter]]]:
    """Connect as processes that share the bucket would, and count what each asks for."""
    transports.register()
    counts = {name: RequestCounter(bucket) for name in names}
    sites = {name: BrokerStorage(Address("memory", name, ""), counting) for name, counting in counts.items()}
    with patch.object(transport, "open_broker_storage", lambda address: sites[address.bucket]):
        connections = [Connection(f"objectstore+memory://{name}") for name in names]
        for connection in connections:
            connection.connect()
        yield list(zip(connections, counts.values(), strict=True))
        for connection in connections:
            connection.release()
