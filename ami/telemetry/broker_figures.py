"""What the broker says of each queue, over one connection that a process keeps."""

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from amqp.exceptions import NotFound
from celery.utils.log import get_logger

from ami.admission import waiting_calls
from ami.celery import outages
from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth
from ami.queues import broker_errors, dead_letters
from ami.topology.topology import Topology
from ami.transports.objectstore.broker.delayed_counts import DelayedCounts

logger = get_logger(__name__)

ANSWER_SECONDS = 2.0
#: A broker that did not answer is asked again after so many seconds: those who watch do not wait for it each time.
AWAY_SECONDS = 4.0
#: RabbitMQ keeps delayed messages in so many queues, each asked for by itself: not more often than this.
DELAY_QUEUES, DELAYED_SECONDS = 28, 15.0
#: A broker in a folder or a bucket reads its slots of delayed messages not more often than this.
STORED_SECONDS = 5.0

#: How many messages of all queues are delayed, and how many of each.
Delayed = tuple[int | None, Mapping[str, int] | None]


@dataclass(frozen=True)
class BrokerFigures:
    """By queue; a queue that is missing from a mapping does not exist.

    ``oldest`` are ages in seconds, where the broker tells. ``delayed`` counts all queues', ``delayed_by_queue`` is None
    where the broker does not tell. ``unseen`` is a sentence where nothing could be read.
    """

    waiting: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    letters: dict[str, int] = field(default_factory=dict)
    oldest: dict[str, float] = field(default_factory=dict)
    tells_oldest: bool = False
    delayed: int | None = None
    delayed_by_queue: Mapping[str, int] | None = None
    unseen: str = ""


def with_calls(seen: BrokerFigures, now: float) -> BrokerFigures:
    """Return what the broker says with the calls that wait as rows beside its messages; one statement at most."""
    return with_waiting(seen, {} if seen.unseen else waiting_calls.by_queue(), now)


def with_waiting(seen: BrokerFigures, calls: Mapping[str, waiting_calls.Waiting], now: float) -> BrokerFigures:
    """Return what the broker says with these calls beside its messages; ``now`` in epoch seconds."""
    if not calls or seen.unseen:
        return seen
    waiting, oldest = dict(seen.waiting), dict(seen.oldest)
    later = None if seen.delayed_by_queue is None else dict(seen.delayed_by_queue)
    for queue, found in calls.items():
        if queue in waiting:
            waiting[queue] += found.due
        if seen.tells_oldest and found.oldest_at is not None:
            oldest[queue] = max(oldest.get(queue, 0.0), now - found.oldest_at.timestamp())
        if later is not None:
            later[queue] = later.get(queue, 0) + found.later
    delayed = None if seen.delayed is None else seen.delayed + sum(found.later for found in calls.values())
    return replace(seen, waiting=waiting, oldest=oldest, delayed=delayed, delayed_by_queue=later)


class BrokerLink:
    """One connection for all threads of the process. A fork's child opens its own."""

    def __init__(self) -> None:
        self._pid, self._lock = os.getpid(), threading.RLock()
        self._connection: Any = None
        self._channel: Any = None
        self._url = self._away = ""
        self._again_at = 0.0
        self._delayed: Delayed = (None, None)
        self._delayed_at = float("-inf")
        self._delayed_counts = DelayedCounts()

    def read(self, app: Any, topology: Topology, *, letters: bool = True, delayed: bool = True) -> BrokerFigures:
        """Return what the broker says now; never raises for a broker that does not answer."""
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]
        with self._lock:
            self._forget_another_broker(str(app.conf.broker_read_url))
            if self._away and time.monotonic() < self._again_at:
                return BrokerFigures(unseen=self._away)
            try:
                found = self._read(app, topology, letters=letters, delayed=delayed)
            except broker_errors.kinds() as error:
                self.close()
                self._away, self._again_at = broker_errors.sentence(error), time.monotonic() + AWAY_SECONDS
                broker_errors.complain("Broker not asked for figures", error)
                return BrokerFigures(unseen=self._away)
            self._away = ""
            outages.answered(outages.BROKER)
            return found

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _forget_another_broker(self, url: str) -> None:
        if self._url not in ("", url):
            self.close()
            self._away, self._delayed_at = "", float("-inf")
        self._url = url

    def _read(self, app: Any, topology: Topology, *, letters: bool, delayed: bool) -> BrokerFigures:
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
        waits: Delayed = self._delayed_now() if delayed else (None, None)
        return BrokerFigures(waiting, consumers, buried, oldest or {}, oldest is not None, *waits)

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

    def _delayed_now(self) -> Delayed:
        kind = kind_of(self._connection)
        if time.monotonic() - self._delayed_at < (DELAYED_SECONDS if kind.delay_exchanges else STORED_SECONDS):
            return self._delayed
        self._delayed_at = time.monotonic()
        self._delayed = (None, None)
        if kind.delay_exchanges:
            found = [self._depth(f"celery_delayed_{number}") for number in range(DELAY_QUEUES)]
            self._delayed = sum(each[0] for each in found if each is not None), None
        elif kind.lists:
            self._delayed = self._delayed_counts.read(self._connection.transport.broker)
        return self._delayed


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
