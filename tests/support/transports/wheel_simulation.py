"""A broker's wheel under a clock of its own, whose timekeeper may be killed at each step."""

import math
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ami.transports.objectstore.broker import broker_storage, open_slots, publish_batch, queue_writer, wheel
from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.broker.envelope import seal
from ami.transports.objectstore.broker.open_slots import OpenSlots
from ami.transports.objectstore.broker.wheel import Delayed
from ami.transports.objectstore.queue.commands import Take
from ami.transports.objectstore.queue.store import Store

QUEUE = "moths"


class Killed(BaseException):
    """The process ends here; nothing of it goes on."""


class Simulation:
    """Messages of one queue, the moment at which each was due, and the moments at which it was delivered."""

    def __init__(self, url: str) -> None:
        self.now = 1_000_000.0
        self.due: dict[str, float] = {}
        self.delivered: dict[str, list[float]] = {}
        self._steps_left = math.inf
        self._address = Address.parse(url.removeprefix("objectstore+"))
        self._stopped = threading.Event()
        self.restart()
        self.broker.declarations.change(lambda known: known.with_queue(QUEUE, QueueRecord()))

    def monotonic(self) -> float:
        """Stands for ``time.monotonic``."""
        return self.now

    def time(self) -> float:
        """Stands for ``time.time``."""
        return self.now

    def restart(self) -> None:
        """Another process takes over: it knows nothing but what is stored."""
        self.broker = BrokerStorage(self._address, broker_storage._storage(self._address, None))
        self.slots = OpenSlots(self.broker)

    def publish(self, seconds: float) -> None:
        name = uuid.uuid4().hex
        self.due[name] = self.now + seconds
        envelope: dict[str, Any] = {
            "body": name,
            "headers": {},
            "properties": {"delivery_info": {"exchange": "", "routing_key": QUEUE}},
        }
        self.broker.wheel.put([Delayed(name, self.due[name], seal(envelope))])

    def work(self, steps: float = math.inf) -> float:
        """Let the timekeeper do what is due; return when there is more to do.

        After so many ``steps`` on the storage it is killed, and another one goes on.
        """
        self._steps_left = steps
        try:
            following = self.slots.work(self._stopped)
        except Killed:
            self._steps_left = math.inf
            self.restart()
            following = self.slots.work(self._stopped)
        self._steps_left = math.inf
        self._consume()
        return following

    def _consume(self) -> None:
        [entries] = self.broker.store(QUEUE).commit([Take(10_000)], durable=False)
        for entry in entries:
            self.delivered.setdefault(entry.id, []).append(self.now)

    def step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Killed


@contextmanager
def simulation(url: str, patch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    """Make a simulation whose storage may be killed before each commit and each removal of a slot."""
    made = Simulation(url)
    for module in (wheel, open_slots):
        patch.setattr(module, "time", made)
    for module in (publish_batch, queue_writer):
        patch.setattr(module, "time", made.time)
    commit, remove = Store.commit, Store.destroy_if_read

    def counted_commit(self: Store, *args: Any, **options: Any) -> Any:
        made.step()
        return commit(self, *args, **options)

    def counted_remove(self: Store) -> bool:
        made.step()
        return remove(self)

    patch.setattr(Store, "commit", counted_commit)
    patch.setattr(Store, "destroy_if_read", counted_remove)
    yield made
