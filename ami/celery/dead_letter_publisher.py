"""Publishes what a worker buries to its queue's dead letters, from a thread and a connection of its own.

The worker's loop must not wait for the broker's confirmation, and could not: it reads the connection on which the
confirmation would come (see ``ami.celery.events``).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery.utils.log import get_logger
from kombu import Connection
from kombu.exceptions import OperationalError

from ami.celery.message_copy import copy

logger = get_logger(__name__)

#: Messages that may wait to be stored; each further one keeps its slot in the worker.
BACKLOG = 100

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0

#: A message whose copy could not be stored for this long is requeued, which counts as a delivery.
RETURN_AFTER_SECONDS = 300.0

#: An idle connection is closed after this long: its heartbeats are not read.
IDLE_SECONDS = 1.0


@dataclass(frozen=True)
class DeadLetter:
    """A received message to bury: where its copy goes, and how to settle it.

    ``stored``, ``refused`` (the copy cannot be published at all) and ``requeue`` run on the loop's thread.
    """

    message: Any
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    stored: Callable[[], None]
    refused: Callable[[], None]
    requeue: Callable[[], None]
    since: float = field(default_factory=time.monotonic)


class DeadLetterPublisher:
    """One per worker. ``connect`` opens a connection whose publishes wait for confirmations; ``call_soon`` runs a
    function on the thread of the worker's loop; ``declare`` makes what the broker lacks.

    A copy that cannot be stored is tried again, at growing intervals; its message stays unacknowledged meanwhile.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        call_soon: Callable[..., Any],
        declare: Callable[[Connection], Any] = lambda _: None,
    ) -> None:
        self._connect, self._call_soon, self._declare = connect, call_soon, declare
        self._letters: deque[DeadLetter] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pause = FIRST_PAUSE_SECONDS

    @property
    def is_full(self) -> bool:
        """Whether more than ``BACKLOG`` messages wait."""
        return len(self._letters) > BACKLOG

    def submit(self, letter: DeadLetter) -> None:
        """Store a copy soon. Call it on the loop's thread."""
        with self._changed:
            self._letters.append(letter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dead-letters", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self) -> None:
        """Drop what waits: its connection was lost, and the broker delivers it again."""
        with self._changed:
            self._letters.clear()

    def _run(self) -> None:
        while True:
            self._next(None)
            try:
                self._store_all()
                self._pause = FIRST_PAUSE_SECONDS
            except Exception as error:  # No failure may end the thread: the worker would hold what waits for ever.
                logger.warning("Dead letters not stored; retrying in %s s: %r", self._pause, error)
                self._return_old()
                time.sleep(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def _store_all(self) -> None:
        connection = self._connect()
        try:
            channel = connection.channel()
            while (letter := self._next(IDLE_SECONDS)) is not None:
                if self._is_publishable(letter, channel, connection):
                    self._done(letter, letter.stored)
                else:
                    self._done(letter, letter.refused)
        except BaseException:
            connection.collect()  # To close it in order could wait for a broker that does not answer.
            raise
        connection.release()

    def _is_publishable(self, letter: DeadLetter, channel: Any, connection: Connection) -> bool:
        """Publish a letter; return whether it can be published at all. Raises the errors of broker and network."""
        try:
            copy(channel, letter.message, letter.exchange, letter.routing_key, letter.headers)
        except connection.channel_errors:
            self._rotate()
            self._declare_again()
            raise
        except (
            OperationalError,
            OSError,
            *connection.connection_errors,
            *connection.recoverable_connection_errors,  # A negative confirmation is one of those alone.
        ):
            self._rotate()
            raise
        except Exception:
            logger.exception("Message cannot be copied; rejecting it instead")
            return False
        return True

    def _declare_again(self) -> None:
        """Declare again what was deleted; the channel that failed is closed."""
        connection = self._connect()
        try:
            self._declare(connection)
        except Exception as error:
            logger.warning("Dead-letter queues not declared: %r", error)
        finally:
            connection.collect()

    def _next(self, timeout: float | None) -> DeadLetter | None:
        with self._changed:
            self._changed.wait_for(lambda: self._letters, timeout)
            return self._letters[0] if self._letters else None

    def _rotate(self) -> None:
        """Move the first message to the end: the failure may concern it alone."""
        with self._changed:
            self._letters.rotate(-1)

    def _done(self, letter: DeadLetter, settle: Callable[[], None]) -> None:
        with self._changed:
            if letter in self._letters:
                self._letters.remove(letter)
        self._call_soon(settle)

    def _return_old(self) -> None:
        before = time.monotonic() - RETURN_AFTER_SECONDS
        for letter in [letter for letter in list(self._letters) if letter.since < before]:
            self._done(letter, letter.requeue)
