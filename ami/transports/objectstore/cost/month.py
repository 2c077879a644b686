"""A month's requests and their price, row by row."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, takewhile

from ami.transports.objectstore.broker.channel import Channel
from ami.transports.objectstore.broker.transport import LONGEST_POLL_SECONDS, POLL_SECONDS
from ami.transports.objectstore.cost.requests import Prices, Requests
from ami.transports.objectstore.cost.sample import Sample

#: By how much a worker that finds nothing waits longer from poll to poll.
POLL_GROWTH = 1.5

#: How often a keeper renews what it holds and says that it lives.
BEAT_SECONDS = Channel.visibility_timeout / 3

#: How often Celery's workers send a heartbeat unless --heartbeat-interval says otherwise.
HEARTBEAT_SECONDS = 2.0

HOUR_SECONDS = 3600.0

ONE_GET = Requests(get=1)


@dataclass(frozen=True)
class Load:
    """A month: messages, and workers that wait for them ``idle_hours``; a message is worked on ``task_seconds``."""

    messages: int
    workers: int
    queues: int
    batch: int
    idle_hours: float
    task_seconds: float
    has_heartbeats: bool

    @property
    def queues_each(self) -> float:
        """How many queues a worker consumes: each queue has at least one worker, and each worker a queue."""
        return max(self.queues, self.workers) / self.workers

    @property
    def workers_each(self) -> int:
        """How many workers consume a queue, at most."""
        return -(-self.workers // self.queues)


@dataclass(frozen=True)
class Row:
    """What one thing asks each time, and how many times a month."""

    name: str
    unit: str
    each: Requests
    times: float

    @property
    def month(self) -> Requests:
        """What it asks in the month."""
        return self.each.times(self.times)


def rows(load: Load, sample: Sample, upkeep: Requests) -> list[Row]:
    """Return a month's rows: those of messages, then those of workers and hours."""
    waited = load.workers * load.idle_hours
    return [
        *(Row(name, "message", each, load.messages) for name, each in _of_messages(load, sample, upkeep)),
        *(Row(name, "worker and hour", each, waited) for name, each in _of_hours(load, sample)),
    ]


def _of_messages(load: Load, sample: Sample, upkeep: Requests) -> Iterator[tuple[str, Requests]]:
    yield "publish", sample.published
    yield "claim", sample.claimed
    yield "acknowledge", sample.acknowledged
    yield "segments, snapshots", upkeep
    yield "renew the lease", sample.renewal.times(load.task_seconds / BEAT_SECONDS)


def _of_hours(load: Load, sample: Sample) -> Iterator[tuple[str, Requests]]:
    further_queues = ONE_GET.times(load.queues_each - 1)
    yield "poll", sample.poll.plus(further_queues).times(polls_per_hour(load))
    beat = sample.beat.plus(further_queues).plus(ONE_GET.times(load.workers - 1))
    yield "presence", beat.times(HOUR_SECONDS / BEAT_SECONDS)
    if load.has_heartbeats:
        yield "Celery's heartbeat", sample.heartbeat.times(HOUR_SECONDS / HEARTBEAT_SECONDS)


def polls_per_hour(load: Load) -> float:
    """Return how often a worker polls in vain, with messages spread evenly over the hours: at most so often.

    After a message it polls soon, and ever more rarely then; the poll that finds the next one is that one's claim.
    """
    if not load.messages or not load.idle_hours:
        return HOUR_SECONDS / LONGEST_POLL_SECONDS
    gap = HOUR_SECONDS * load.idle_hours * load.workers * load.batch / load.messages
    growing = list(takewhile(lambda pause: pause < LONGEST_POLL_SECONDS, _pauses()))
    moments = list(accumulate(growing))
    in_vain = sum(moment < gap for moment in moments) + max(0.0, (gap - moments[-1]) // LONGEST_POLL_SECONDS)
    return in_vain * HOUR_SECONDS / gap


def _pauses() -> Iterator[float]:
    pause = POLL_SECONDS
    while True:
        yield pause
        pause *= POLL_GROWTH


def price(of: list[Row], prices: Prices) -> float:
    """Return what the rows cost together, in US dollars."""
    return prices.of(Requests.total(row.month for row in of))
