"""The background thread that fires delayed messages and sweeps expired ones, of all queues of a broker."""

import logging
import threading
import time
import weakref

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.election import Election, LockElection, RecordElection
from ami.transports.objectstore.broker.notify import Listener
from ami.transports.objectstore.broker.open_slots import OpenSlots
from ami.transports.objectstore.broker.wheel import FOLDER

log = logging.getLogger(__name__)

#: How often a process that is not the timekeeper looks whether it became one.
ELECTION_SECONDS = 1.0

#: A local broker's slots are looked at so often at least: a clock may be set, a notification may be lost.
LONGEST_WAIT_SECONDS = 30.0

#: The pause between two looks at a remote storage, at first and at its longest; also that of a consumer's polls.
POLL_SECONDS, LONGEST_POLL_SECONDS = 1.0, 8.0

#: The pause after a failure, doubled from one to the next.
FAILED_SECONDS, LONGEST_FAILED_SECONDS = 1.0, 30.0

LOCK = ".timekeeper"


class Timekeeper:
    """One per broker and process; it runs while the process has a consumer of any queue."""

    def __init__(self, broker: BrokerStorage) -> None:
        # The broker has this object, and what nobody uses is closed at once.
        self._broker = weakref.ref(broker)
        self._owners: set[str] = set()
        self._election = _election(broker)
        self._lock = threading.Lock()
        self._run_now: _Run | None = None

    def join(self, owner: str) -> None:
        """Run, from now on, for a connection that consumes."""
        with self._lock:
            self._owners.add(owner)
            broker = self._broker()
            if self._run_now is None and broker is not None:
                self._run_now = _Run(broker, self._election)

    def leave(self, owner: str) -> None:
        """End when the last connection stops consuming."""
        with self._lock:
            self._owners.discard(owner)
            if self._owners or self._run_now is None:
                return
            run, self._run_now = self._run_now, None
        run.stop()

    def observe(self, alive: set[str], seconds: float) -> None:
        """Take into account which connections consume, for so long at least."""
        self._election.observe(self._owners, alive, seconds)


class _Run:
    """The thread from its start to its end."""

    def __init__(self, broker: BrokerStorage, election: Election) -> None:
        self._broker = broker
        self._slots = OpenSlots(broker, election.term)
        self._election = election
        self._stopped = threading.Event()
        self._listener: Listener | None = None
        self._lock = threading.Lock()
        self._poll_seconds = POLL_SECONDS
        self._failed_seconds = FAILED_SECONDS
        self._thread = threading.Thread(target=self._run, name="objectstore-timekeeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        with self._lock:
            if self._listener is not None:
                self._listener.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._turn()
        finally:
            self._lose()

    def _turn(self) -> None:
        try:
            if not self._election.is_won():
                self._stop_listening()
                self._stopped.wait(ELECTION_SECONDS)
                return
            listener = self._listener or self._listen()
            following = self._slots.work(self._stopped)
        except Exception as error:  # The thread must outlive whatever a storage or a message does.
            log.warning("Firing delayed messages failed; trying again: %r", error)
            self._stopped.wait(self._failed_seconds)
            self._failed_seconds = min(2 * self._failed_seconds, LONGEST_FAILED_SECONDS)
            return
        self._failed_seconds = FAILED_SECONDS
        self._wait(listener, following)

    def _listen(self) -> Listener:
        """Begin to keep the time. Only then is the first look: what is published after it wakes this thread."""
        listener = Listener()
        listener.watch(FOLDER, self._broker.wheel.bell)
        self._listener = listener
        return listener

    def _wait(self, listener: Listener, until: float) -> None:
        seconds = max(0.0, min(until - time.time(), LONGEST_WAIT_SECONDS))
        if not self._broker.is_local:
            self._poll_seconds = POLL_SECONDS if self._slots.is_active else self._poll_seconds * 1.5
            self._poll_seconds = min(self._poll_seconds, LONGEST_POLL_SECONDS)
            seconds = min(seconds, self._poll_seconds)
        if self._stopped.is_set():
            return
        if listener.can_listen:
            listener.wait(seconds)
            listener.notified()
        else:
            self._stopped.wait(min(seconds, ELECTION_SECONDS))

    def _lose(self) -> None:
        self._stop_listening()
        self._election.resign()

    def _stop_listening(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
            if listener is not None:
                listener.close()


def _election(broker: BrokerStorage) -> Election:
    if broker.address.scheme == "file":
        return LockElection(broker.address.folder / FOLDER / LOCK)
    return RecordElection()
