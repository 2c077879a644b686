"""How many requests a broker in a bucket makes.

The real transport runs over a bucket in memory that counts, on a clock that this program moves, so an hour takes a
second. The reference is a broker with one request per message and state change (publish, claim, acknowledge), and none
for waiting. ``docs/brokers.md`` multiplies these rows by the services' prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ami.transports.objectstore.broker.timekeeper import LONGEST_POLL_SECONDS
from benchmarks.frame import Figure
from tests.support.transports.fake_bucket import (
    EVENTS,
    HEARTBEAT_SECONDS,
    LONG_SECONDS,
    Bucket,
    Clock,
    Process,
    Requests,
    clock,
    counted_processes,
    task_queue,
)

QUEUE = task_queue("tasks")
HOUR_SECONDS, STEP_SECONDS = 3600.0, 0.25

#: A lease of a minute is renewed three times.
BEAT_SECONDS = 20.0


@dataclass(frozen=True)
class Row:
    """Requests per ``unit``, beside those of the reference."""

    name: str
    unit: str
    requests: Requests
    reference: int


def message_rows(together: int) -> list[Row]:
    """Count the requests per message, for messages that come so many at a time to a quiet queue."""
    with clock() as now, counted_processes(Bucket(), "publisher", "worker") as [publisher, worker]:
        _warm_up(now, publisher, worker, prefetch=together)

        def publish() -> None:
            for _ in range(together):
                publisher.publish(QUEUE)

        published = publisher.count(publish)
        claimed = worker.count(worker.poll)
        # The task takes longer than a head is believed.
        now.now += LONG_SECONDS
        acknowledged = worker.count(worker.acknowledge_all)
    alone = "alone" if together == 1 else f"{together} at a time"
    steps = {"publish": published, "claim": claimed, "acknowledge": acknowledged}
    return [Row(f"{name}, {alone}", "message", each.times(1 / together), 1) for name, each in steps.items()]


def idle_rows() -> list[Row]:
    """Count the requests of an idle worker of one queue in an hour."""
    with clock() as now, counted_processes(Bucket(), "publisher", "worker") as [publisher, worker]:
        _warm_up(now, publisher, worker, prefetch=1)
        EVENTS(worker.connection.default_channel).declare()
        worker.send_heartbeat()
        polls = _in_an_hour(now, worker, worker.turn, STEP_SECONDS)
        delays = _in_an_hour(now, worker, worker.look_for_delayed, LONGEST_POLL_SECONDS)
        beats = _in_an_hour(now, worker, worker.beat, BEAT_SECONDS)
        heartbeats = _in_an_hour(now, worker, worker.send_heartbeat, HEARTBEAT_SECONDS)
    steps = {
        "poll": polls,
        "look for delayed messages": delays,
        "announce itself": beats,
        "Celery's heartbeat event": heartbeats,
    }
    return [Row(name, "idle worker and hour", requests, 0) for name, requests in steps.items()]


def _warm_up(now: Clock, publisher: Process, worker: Process, prefetch: int) -> None:
    """Let a first message through: what is made once is not counted."""
    worker.consume([QUEUE], prefetch)
    publisher.publish(QUEUE)
    worker.poll()
    worker.acknowledge_all()
    worker.poll()
    now.now += LONG_SECONDS


def _in_an_hour(now: Clock, process: Process, action: Callable[[], object], every_seconds: float) -> Requests:
    counted = Requests()
    for _ in range(int(HOUR_SECONDS / every_seconds)):
        counted = counted.plus(process.count(action))
        now.now += every_seconds
    return counted


def figures(quick: bool) -> Iterator[Figure]:  # noqa: ARG001 - it takes a second
    """Yield how many requests of each kind each step makes.

    A further queue adds a GET per poll and beat, a further worker a GET per beat (every 20 s).
    """
    for row in [*message_rows(1), *message_rows(10), *idle_rows()]:
        for kind, number in row.requests._asdict().items():
            if number:
                what, reference = f"{kind.upper()} to {row.name}", "one request per message and change"
                yield Figure(what, f"per {row.unit}", number, reference, row.reference, number / (row.reference or 1))
