"""A publisher that waits for each confirmation and a consumer, both of which know all nodes of a cluster."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.conf import settings
from kombu import Connection, Producer, Queue
from kombu.exceptions import OperationalError
from kombu.mixins import ConsumerMixin

from ami.topology import broker

OPTIONS = {"confirm_publish": True}
CONFIRM_SECONDS = 10


class Publisher(threading.Thread):
    """Publishes 0, 1, 2... to ``queue`` as Antenna does, each until it is confirmed, until it is told to stop.

    ``pace`` is the seconds between a confirmation and the next.
    """

    def __init__(self, urls: str, queue: str, limit: int, pace: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.pace = pace
        self.urls, self.queue, self.limit = urls, queue, limit
        self.confirmed: dict[int, float] = {}
        self.repeated: set[int] = set()
        self.refused = 0
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Publish; what ends it early is kept in ``error``."""
        try:
            with Connection(self.urls, transport_options=OPTIONS, connect_timeout=2) as connection:
                producer = Producer(connection, auto_declare=False)
                number = 0
                while number < self.limit and not self.stopping.is_set():
                    if self._publish(producer, number):
                        self.confirmed[number] = time.monotonic()
                        number += 1
                        self.stopping.wait(self.pace)
        except BaseException as error:  # The test tells it, in its own thread.
            self.error = error

    def _publish(self, producer: Producer, number: int) -> bool:
        """Return whether it was confirmed; it may be in the queue without that, so it is published once more."""
        policy = {**settings.CELERY_TASK_PUBLISH_RETRY_POLICY, "errback": lambda *_: self.repeated.add(number)}
        try:
            producer.publish(
                number,
                exchange=broker.EXCHANGE_NAME,
                routing_key=self.queue,
                serializer="json",
                delivery_mode=2,
                retry=True,
                retry_policy=policy,
                confirm_timeout=CONFIRM_SECONDS,
            )
        except (OperationalError, *producer.connection.recoverable_connection_errors):
            self.repeated.add(number)
            self.refused += 1
            return False
        return True

    def longest_gap_seconds(self) -> float:
        """Return the longest time between two confirmations."""
        times = list(self.confirmed.values())
        return max((later - earlier for earlier, later in zip(times, times[1:], strict=False)), default=0.0)


class Received:
    """How often each number came, and how often as a message that RabbitMQ called redelivered; several may write."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()
        self.redelivered: Counter[int] = Counter()
        self.last = time.monotonic()
        self._lock = threading.Lock()

    def add(self, number: int, redelivered: bool) -> None:
        """Count one delivery."""
        with self._lock:
            self.times[number] += 1
            self.redelivered[number] += redelivered
            self.last = time.monotonic()

    def unexplained(self, repeated: set[int]) -> dict[int, int]:
        """Return what came more than once though nobody published it again and RabbitMQ did not call it redelivered."""
        return {
            number: count
            for number, count in self.times.items()
            if count - self.redelivered[number] > 1 and number not in repeated
        }


class Consumer(ConsumerMixin, threading.Thread):
    """Consumes ``queue`` into ``received``, at the next node when its own is gone."""

    def __init__(self, urls: str, queue: str, received: Received) -> None:
        threading.Thread.__init__(self, daemon=True)
        self.connection = Connection(urls, transport_options=OPTIONS, connect_timeout=2)
        self.queue, self.received = queue, received

    def get_consumers(self, Consumer: Callable[..., Any], channel: Any) -> list[Any]:  # kombu names it
        """Consume a queue that exists; ConsumerMixin asks again after each reconnect."""
        queue = Queue(self.queue, no_declare=True)
        return [Consumer([queue], callbacks=[self._take], prefetch_count=20, auto_declare=False)]

    def _take(self, body: int, message: Any) -> None:
        self.received.add(body, bool(message.delivery_info["redelivered"]))
        message.ack()
