"""One round of real publishing, polling, claiming, acknowledging, renewing and beating, each counted by itself."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from kombu import Queue

from ami.transports.objectstore.broker.declaration_store import FRESH_SECONDS
from ami.transports.objectstore.broker.transport import LONGEST_POLL_SECONDS
from ami.transports.objectstore.cost.ledger import HEAD, LAYOUT
from ami.transports.objectstore.cost.processes import Process, Worker, bells, task_queue
from ami.transports.objectstore.cost.requests import Requests
from ami.transports.objectstore.journal.objects import HEAD_SECONDS
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.storage.memory import MemoryObjects

#: A keeper beats three times per lease. With this one it beats when the layout that it knows has just become old, as
#: it is at every beat of a lease of a minute.
LEASE_SECONDS = 3 * (FRESH_SECONDS + 1.0)
BEAT_SECONDS = LEASE_SECONDS / 3 + 5.0

#: So much longer than a head is believed.
MARGIN_SECONDS = 0.2

PATIENCE_SECONDS = 2 * LONGEST_POLL_SECONDS


@dataclass(frozen=True)
class Sample:
    """Requests per message when all is quiet, and per poll, beat and heartbeat of a worker.

    ``poll`` and ``beat`` hold for a worker of one queue without any other worker; ``renewal`` is what a beat takes more
    while messages are held. ``stored_bytes`` is a message with all that kombu writes on it.
    """

    stored_bytes: int
    published: Requests
    claimed: Requests
    acknowledged: Requests
    poll: Requests
    beat: Requests
    renewal: Requests
    heartbeat: Requests


class _Broker(NamedTuple):
    """A broker of one queue, with the process that publishes there and the worker that consumes it."""

    storage: MemoryObjects
    queue: Queue
    publisher: Process
    worker: Worker


def take(message_bytes: int, batch: int) -> Sample:
    """Count for about ten seconds; ``batch`` messages wait together when the worker polls."""
    body = b"x" * message_bytes
    with ExitStack() as stack:
        busy, holding = _broker(stack, batch), _broker(stack, 1)
        for broker in (busy, holding):
            # What is there for the first time is not counted.
            broker.publisher.publish(broker.queue, body)
            broker.worker.receive(1, PATIENCE_SECONDS)
        busy.worker.acknowledge_all()
        busy.publisher.declare_events()
        heartbeat = _during(busy.publisher, busy.publisher.send_heartbeat)
        poll = _await_beats(busy.worker, holding.worker)
        beat, holding_beat = (broker.worker.ledger.requests(by_keeper=True) for broker in (busy, holding))
        published, claimed, acknowledged = (each.times(1 / batch) for each in _round(busy, body, batch))
        [held] = open_store(holding.storage, f"queues/{holding.queue.name}/").look().entries.values()
    renewal = holding_beat.minus(beat)
    return Sample(held.length, published, claimed, acknowledged, poll, beat, renewal, heartbeat)


def _broker(stack: ExitStack, prefetch: int) -> _Broker:
    storage, queue, folder = MemoryObjects(), task_queue("tasks"), stack.enter_context(bells())
    worker = Worker(storage, folder(), LEASE_SECONDS, [queue], prefetch)
    publisher = Process(storage, folder(), LEASE_SECONDS)
    for process in (worker, publisher):
        stack.callback(process.connection.release)
    return _Broker(storage, queue, publisher, worker)


def _await_beats(*workers: Worker) -> Requests:
    """Return when every keeper has beaten once; return what the last poll of the first worker asked."""
    deadline, poll = time.monotonic() + BEAT_SECONDS, Requests()
    while not all(worker.keeper_turns for worker in workers):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no keeper beat within {BEAT_SECONDS:g} s")
        asked = _during(workers[0], workers[0].turn)
        poll = asked if any(asked) else poll
        time.sleep(0.01)
    return poll


def _round(broker: _Broker, body: bytes, batch: int) -> tuple[Requests, Requests, Requests]:
    """Let a batch through after a quiet time; return what publishing, claiming and acknowledging asked."""
    publisher, worker = broker.publisher, broker.worker
    published = _during(publisher, lambda: publisher.publish(broker.queue, body, times=batch))
    claimed = _during(worker, lambda: worker.receive(batch, PATIENCE_SECONDS))
    # A task that takes longer than a head is believed.
    time.sleep(HEAD_SECONDS + MARGIN_SECONDS)
    return published, claimed, _during(worker, worker.acknowledge_all)


def _during(process: Process, do: Callable[[], object]) -> Requests:
    """Return what a process asked for meanwhile; segments and its keeper are counted elsewhere."""
    before = process.ledger.requests(HEAD, LAYOUT)
    do()
    return process.ledger.requests(HEAD, LAYOUT).minus(before)
