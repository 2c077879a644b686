"""What the broker says of each queue, over one connection that a process keeps."""

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from amqp.exceptions import NotFound
from celery.utils.log import get_logger

from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth
from ami.queues import broker_errors, dead_letters
from ami.topology.topology import Topology

logger = get_logger(__name__)

ANSWER_SECONDS = 2.0
#: A broker that did not answer is asked again after so many seconds: those who watch do not wait for it each time.
AWAY_SECONDS = 4.0
#: RabbitMQ keeps delayed messages in so many queues, each asked for by itself: not more often than this.
DELAY_QUEUES, DELAYED_SECONDS = 28, 15.0


@dataclass(frozen=True)
class BrokerFigures:
    """By queue; a queue that is missing from a mapping does not exist. ``oldest`` are ages in seconds, where the broker
    tells. ``delayed`` counts all queues'. ``unseen`` is a sentence where nothing could be read.
    """

    waiting: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    letters: dict[str, int] = field(default_factory=dict)
    oldest: dict[str, float] = field(default_factory=dict)
    tells_oldest: bool = False
    delayed: int | None = None
    unseen: str = ""


class BrokerLink:
    """One connection for all threads of the process. A fork's child opens its own."""

    def __init__(self) -> None:
        self._pid, self._lock = os.getpid(), threading.RLock()
        self._connection: Any = None
        self._channel: Any = None
        self._away, self._again_at = "", 0.0
        self._delayed: tuple[float, int | None] = (float("-inf"), None)

    def read(self, app: Any, topology: Topology, *, letters: bool = True) -> BrokerFigures:
        """Return what the broker says now; never raises for a broker that does not answer."""
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]
        with self._lock:
            if self._away and time.monotonic() < self._again_at:
                return BrokerFigures(unseen=self._away)
            try:
                found = self._read(app, topology, letters=letters)
            except broker_errors.kinds() as error:
                self.close()
                self._away, self._again_at = broker_errors.sentence(error), time.monotonic() + AWAY_SECONDS
                return BrokerFigures(unseen=self._away)
            self._away = ""
            return found

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _read(self, app: Any, topology: Topology, *, letters: bool) -> BrokerFigures:
        self._connect(app)
        waiting, consumers, buried = {}, {}, {}
        for queue in topology.queues:
            if (found := self._depth(queue)) is not None:
                waiting[queue], consumers[queue] = found
        if letters and kind_of(self._connection).routes:
            for queue in dead_letters.burial_queues(topology):
                if (found := self._depth(queue)) is not None:
                    buried[queue] = found[0]
        oldest = _oldest(self._connection, topology)
        return BrokerFigures(waiting, consumers, buried, oldest or {}, oldest is not None, self._delayed_now())

    def _connect(self, app: Any) -> None:
        if self._connection is not None and self._connection.connected:
            return
        self.close()
        options = {**(app.conf.broker_transport_options or {})}
        if kind_of(app.connection_for_read()).is_managed:
            options |= {"read_timeout": ANSWER_SECONDS, "write_timeout": ANSWER_SECONDS}
        self._connection = app.connection_for_read(connect_timeout=ANSWER_SECONDS, transport_options=options)
        self._connection.ensure_connection(max_retries=1, timeout=ANSWER_SECONDS)

    def _depth(self, queue: str) -> tuple[int, int] | None:
        if self._channel is None:
            self._channel = self._connection.channel()
        try:
            return depth(self._channel, queue)
        except NotFound:
            self._channel = None  # It is closed by that.
            return None

    def _delayed_now(self) -> int | None:
        kind = kind_of(self._connection)
        if time.monotonic() - self._delayed[0] < DELAYED_SECONDS:
            return self._delayed[1]
        count: int | None = None
        if kind.delay_exchanges:
            found = [self._depth(f"celery_delayed_{number}") for number in range(DELAY_QUEUES)]
            count = sum(each[0] for each in found if each is not None)
        elif kind.lists:
            wheel = self._connection.transport.broker.wheel
            count = sum(len(wheel.store(slot).look().entries) for slot in wheel.slots())
        self._delayed = time.monotonic(), count
        return count


def _oldest(connection: Any, topology: Topology) -> dict[str, float] | None:
    """Return the age of the oldest waiting message of each queue; None where the broker does not tell."""
    if not kind_of(connection).lists:
        return None
    storage, now, found = connection.transport.broker, time.time(), {}
    known = storage.declarations.current(fresh=True).queues
    for queue in (queue for queue in topology.queues if queue in known):
        entries = storage.store(queue).look().entries
        first = next((entry for entry in list(entries.values()) if entry.is_waiting), None)
        if first is not None:
            found[queue] = max(0.0, now - first.created)
    return found


#: The process's own.
link = BrokerLink()
