"""The thread in which the process that collects letters publishes: replays that no other process does, and what was
set aside and is enabled again.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery.utils.log import get_logger
from django.conf import settings
from django.db import Error
from django.db.models import BigIntegerField, CharField, Value

from ami.celery import outages
from ami.celery.process_name import name_of_this_process
from ami.celery.thread_database import short_connection
from ami.queues import broker_errors
from ami.queues.letters import replays, set_aside
from ami.queues.models import Letter, Replay

logger = get_logger(__name__)

#: How often it looks for what waits, unless it is woken; how soon again after it found something; and for how long one
#: replay is published before the others.
LOOK_SECONDS, AGAIN_SECONDS, TURN_SECONDS = 40.0, 5.0, 10.0


class ReplayThread:
    """One replay at a time; those asked for in the admin or the API, and those whose process was killed."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._next = 0.0

    def turn(self, app: Any, now: float) -> None:
        """Begin with what waits, if it is time to look: one statement.

        Raises:
            django.db.Error: the database does not answer.
        """
        if now < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + LOOK_SECONDS
        with short_connection():
            found = _waiting()
            if any(state == Replay.State.STOPPED for _, state in found):
                replays.reclaim()
        if found:
            self._next = now + AGAIN_SECONDS
            keys = [key for key, state in found if state == Replay.State.RUNNING]
            self._thread = threading.Thread(target=self._run, args=(app, keys), name="replay", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look at the next turn."""
        self._next = 0.0

    def stop(self) -> None:
        """End after the letters that are being published; another process goes on."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(2)

    def _run(self, app: Any, keys: list[int]) -> None:
        topology, holder = settings.ANTENNA_TOPOLOGY, name_of_this_process()

        def set_aside_messages(connection: Any) -> None:
            options: dict[str, Any] = {"is_stopped": self._turn_is_over(), "database": short_connection}
            if count := set_aside.publish_enabled(topology, connection, holder, **options):
                logger.info("Messages of enabled tasks published: %d", count)

        def replay(key: int, connection: Any) -> None:
            options: dict[str, Any] = {"is_stopped": self._turn_is_over(), "database": short_connection}
            found = replays.work(topology, connection, key, **options)
            if found.state != Replay.State.RUNNING:
                logger.info("Replay %d: %d of %d letters, %s", key, found.done, found.total, found.state)

        turns: list[Callable[[Any], None]] = [set_aside_messages, *(partial(replay, key) for key in keys)]
        for publish in turns:
            try:
                with app.connection_for_write() as connection:
                    publish(connection)
            except Error as error:
                outages.complain("Letters are published later", error)
            except broker_errors.kinds() as error:
                broker_errors.complain("Letters are published later", error)
            except Exception:
                logger.exception("Letters are published later")

    def _turn_is_over(self) -> Callable[[], bool]:
        """Return what ends one replay's turn: the others, and what is enabled, shall not wait for a slow one."""
        until = time.monotonic() + TURN_SECONDS
        return lambda: self._stopped.is_set() or time.monotonic() >= until


def _waiting() -> list[tuple[int, str]]:
    """Return the keys and states of replays to go on with, and one row for what is enabled; one statement."""
    marker = Value(0, BigIntegerField()), Value(Letter.State.SET_ASIDE, CharField())
    enabled = set_aside.enabled().order_by().values_list(*marker)
    return sorted(replays.waiting().order_by().values_list("pk", "state").union(enabled))
