"""The operation ``queues adopt``: checks both brokers, then counts, moves or follows."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from celery import current_app
from django.conf import settings
from django.db import InterfaceError, OperationalError, connections
from kombu import Connection

from ami.adopt.bridge import Bridge, End
from ami.adopt.errors import AdoptionRefused, OldBrokerFailed, StorageFailed
from ami.adopt.old_broker import OldBroker
from ami.adopt.old_tasks import BECOMES
from ami.adopt.plan import Planner
from ami.adopt.split import Split
from ami.adopt.tally import Line, Tally
from ami.celery.broker_kind import kind_of
from ami.queues import broker_errors
from ami.queues.queue import queue_states
from ami.queues.tasks import load_tasks
from ami.topology.topology import Topology

#: What a database raises that is away for a while.
DATABASE_ERRORS = (InterfaceError, OperationalError)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0


@dataclass
class Watcher:
    """What the user of an operation hears: ``moved`` after each message and look, ``notice`` when it must wait.

    ``stop`` ends the operation between two messages.
    """

    moved: Callable[[Tally], None]
    notice: Callable[[str], None]
    stop: threading.Event


def planned(old: OldBroker, topology: Topology) -> Counter[Line]:
    """Return what would become of the messages that wait. They are read and return to their queues, in order.

    Raises:
        WrongSource, AdoptionRefused, OldBrokerFailed: see `adopt`.
    """
    with current_app.connection_for_write() as new, old:
        _refuse(old, new, topology)
        planner, found = _planner(topology), Counter[Line]()
        for state in old.existing():
            # Not more than there are now: publishers may go on.
            for _ in range(state.messages or 0):
                message = old.get(state.name)
                if message is None:
                    break
                found[Line.of(state.name, planner.plan(message))] += 1
        return found


def adopt(
    old: OldBroker, topology: Topology, watcher: Watcher, silent_seconds: float | None = None
) -> tuple[End, Tally]:
    """Move the messages of the old queues into the split; return why it ended, and the counts.

    With ``silent_seconds`` it follows the old publishers until nothing has come for so long, and waits for a broker
    or a database that it loses meanwhile.

    Raises:
        WrongSource: both URLs name one virtual host.
        AdoptionRefused: the split is not declared, the old queues are missing or have other consumers, or another run
            has begun.
        OldBrokerFailed, StorageFailed: the old broker, or the storage of results, failed.
        amqp.exceptions.AMQPError, TimeoutError: the split's broker failed. No message is lost in any case; the next
            run goes on.
    """
    with current_app.connection_for_write() as new, old:
        _refuse(old, new, topology)
        old.consumed()
    failures: tuple[type[BaseException], ...] = (
        OldBrokerFailed,
        StorageFailed,
        *DATABASE_ERRORS,
        *broker_errors.kinds(),
    )
    tally, pause = Tally(old.place), 0.0
    while True:
        before = sum(tally.run.values())
        try:
            return _once(old, topology, tally, watcher, silent_seconds), tally
        except failures as error:
            if silent_seconds is None:
                raise
            moved = sum(tally.run.values()) > before
            pause = FIRST_PAUSE_SECONDS if moved or not pause else min(2 * pause, LONGEST_PAUSE_SECONDS)
            watcher.notice(f"{_sentence(error)} Trying again in {pause:g} s.")
            if watcher.stop.wait(pause):
                return End.STOPPED, tally


def _once(old: OldBroker, topology: Topology, tally: Tally, watcher: Watcher, silent_seconds: float | None) -> End:
    with current_app.connection_for_write() as new, closing(Split(new)) as split, old:
        bridge = Bridge(old, split, _planner(topology), tally, lambda: watcher.moved(tally), watcher.stop)
        return bridge.run(silent_seconds)


def _sentence(error: BaseException) -> str:
    if isinstance(error, DATABASE_ERRORS):
        connections.close_all()  # It is opened again when it is needed.
        return f"The database failed ({type(error).__name__})."
    return str(error) if isinstance(error, (OldBrokerFailed, StorageFailed)) else broker_errors.sentence(error)


def _refuse(old: OldBroker, new: Connection, topology: Topology) -> None:
    old.refuse_same_place(new)
    if not kind_of(new).routes:
        raise AdoptionRefused(
            f"The broker at {new.as_uri()} keeps no dead letters, where some messages belong; use RabbitMQ, a folder "
            "or a bucket for the split."
        )
    if missing := [state.queue for state in queue_states(topology, new) if state.messages is None]:
        raise AdoptionRefused(
            f"The split is not declared at {new.as_uri()} ({', '.join(missing)} missing): run 'manage.py queues "
            "declare'."
        )


def _planner(topology: Topology) -> Planner:
    load_tasks()
    most_bytes: int = settings.ANTENNA_RESULT_MAX_BYTES  # type: ignore[misc]  # A schema's variable.
    return Planner(topology, BECOMES, most_bytes, current_app.tasks)
