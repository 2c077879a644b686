"""Takes dead letters out of their queues into the database, in whatever process holds the deployment's lease."""

import time
from contextlib import suppress
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from django.conf import settings
from django.db import Error

from ami.celery import batch_writes, outages
from ami.celery.broker_kind import kind_of
from ami.celery.thread_database import short_connection
from ami.queues import broker_errors, dead_letters, named_leases
from ami.queues.letters import rows
from ami.queues.letters.replay_thread import ReplayThread

logger = get_logger(__name__)

NAME, LEASE_SECONDS = "letters", 90.0
#: Who holds the lease renews it so often; others try so often to get it.
RENEW_SECONDS, TRY_SECONDS = 40.0, 60.0
LOOK_SECONDS = 3.0
#: A batch is written when it has so many bytes: a statement of this thread has a second.
MOST_BYTES = 2 * 1024**2
CLEAN_SECONDS = 3600.0
#: What is not collected stays in its queue.
UNCOLLECTED = "Dead letters not collected"


class Collector:
    """One per process, used by one thread. It needs no queue to be read by any worker."""

    def __init__(self) -> None:
        self._replays = ReplayThread()
        self._next = self._lease_at = 0.0
        self._cleaned_at = time.monotonic()
        self._connection: Any = None
        self._channel: Any = None
        self._most = rows.BATCH

    def turn(self, app: Any, name: str) -> None:
        """Collect if it is time and this process holds the lease; called every second."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        try:
            if not self._holds(name, now):
                self._next = now + TRY_SECONDS
                self.close()
                return
            self._replays.turn(app, now)
            self._collect(app)
        except Error as error:
            outages.complain(UNCOLLECTED, error)
            self._next, self._most = now + TRY_SECONDS / 3, 1  # It may have been too much at once.
            self.close()
        except broker_errors.kinds() as error:
            broker_errors.complain(UNCOLLECTED, error)
            self.close()

    def wake(self) -> None:
        """Look now whether a replay, or what is enabled, waits."""
        self._replays.wake()

    def end(self, name: str) -> None:
        """Give the lease up: another process collects at its next try."""
        self._replays.stop()
        self.close()
        if self._lease_at:
            with short_connection():
                named_leases.release(NAME, name)

    def close(self) -> None:
        """Close the broker's connection; what is not acknowledged returns to its queue."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _holds(self, name: str, now: float) -> bool:
        if now - self._lease_at < RENEW_SECONDS and self._lease_at:
            return True
        with short_connection():
            is_held = named_leases.take(NAME, name, LEASE_SECONDS)
            if is_held and now - self._cleaned_at >= CLEAN_SECONDS and rows.forget_old() < rows.FORGOTTEN:
                self._cleaned_at = now
        self._lease_at = now if is_held else 0.0
        return is_held

    def _collect(self, app: Any) -> None:
        if self._channel is None:
            self._connection = app.connection_for_read()
            if not kind_of(self._connection).routes:
                self._next = time.monotonic() + TRY_SECONDS
                return
            self._connection.ensure_connection(max_retries=1, timeout=5)
            self._channel = self._connection.channel()
        for queue in dead_letters.burial_queues(settings.ANTENNA_TOPOLOGY):
            while (count := self._take(queue)) and time.monotonic() - self._lease_at < RENEW_SECONDS:
                logger.info("Dead letters collected: %d", count, extra={"queue": queue})

    def _take(self, queue: str) -> int:
        """Write up to a batch of one queue's letters, then acknowledge them; return how many."""
        taken: list[Any] = []
        size = 0
        while len(taken) < min(self._most, rows.BATCH) and size < MOST_BYTES:
            if (raw := self._channel.basic_get(queue, no_ack=False)) is None:
                break
            taken.append(self._channel.message_to_python(raw))
            size += len(taken[-1].body or b"")
        if taken:
            refused: list[Any] = []
            with short_connection():
                batch_writes.write(taken, partial(rows.write, queue), partial(_refuse, queue, refused))
            self._most = rows.BATCH
            written = [message for message in taken if message not in refused]
            for message in written:
                self._channel.basic_ack(message.delivery_tag)
            with short_connection():
                rows.settled(written)
        return len(taken)


def _refuse(queue: str, refused: list[Any], message: Any, error: Exception) -> None:
    """Name a letter that the database refuses. Not acknowledged, it stays in its queue, and behind it the others go."""
    refused.append(message)
    found = dead_letters.letter(queue, message)
    fields = {"queue": queue, "task": found.task, "task_id": found.task_id}
    logger.error("Dead letter left in its queue, the database refuses it: %r", error, extra=fields)


#: This process's, which `config` connects.
DUTY = Collector()
