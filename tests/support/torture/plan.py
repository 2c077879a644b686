"""The queues of the torture, and what each publisher sends: derived from a seed, the same in every run."""

import random
import zlib
from dataclasses import dataclass
from enum import StrEnum

from kombu import Exchange, Queue

WORK = Exchange("torture", type="direct", durable=True)
DEAD = Exchange("torture.dead", type="direct", durable=True)
DEAD_LETTERS = Queue("torture.dead", DEAD, routing_key="dead", durable=True)

_TO_DEAD = {"x-dead-letter-exchange": DEAD.name, "x-dead-letter-routing-key": "dead"}

#: Every consumer consumes both of them.
CONSUMED = ("torture.a", "torture.b")

#: Nothing consumes it: its messages expire into the dead-letter queue.
EXPIRING = "torture.expiring"
EXPIRING_SECONDS = 1.0

#: Share of the messages by size: up to this many bytes, log-uniform from the size before.
SIZES = ((0.85, 2_000), (0.14, 200_000), (0.01, 5_000_000))


class Kind(StrEnum):
    """What becomes of a message."""

    PLAIN = "plain"
    #: Its consumer publishes a successor, and acknowledges it then.
    REPUBLISHED = "republished"
    #: Its consumer rejects it: it must be in the dead-letter queue.
    REJECTED = "rejected"
    #: It has a TTL of its own: consumed, or in the dead-letter queue.
    PERISHABLE = "perishable"
    #: Sent to the queue that nothing consumes: it must be in the dead-letter queue.
    EXPIRED = "expired"


WEIGHTS = {Kind.PLAIN: 66, Kind.REPUBLISHED: 18, Kind.REJECTED: 4, Kind.PERISHABLE: 4, Kind.EXPIRED: 8}


@dataclass(frozen=True)
class Planned:
    """One message before it is published; ``expires`` is its own TTL in seconds."""

    kind: Kind
    queue: str
    body: bytes
    expires: float | None = None

    @property
    def checksum(self) -> int:
        return zlib.crc32(self.body)


def queues() -> list[Queue]:
    """Return all queues, the dead-letter queue first."""
    consumed = [Queue(name, WORK, routing_key=name, durable=True, queue_arguments=_TO_DEAD) for name in CONSUMED]
    arguments = {**_TO_DEAD, "x-message-ttl": int(1000 * EXPIRING_SECONDS)}
    return [DEAD_LETTERS, *consumed, Queue(EXPIRING, WORK, routing_key=EXPIRING, queue_arguments=arguments)]


def planned(seed: int, publisher: str, number: int) -> Planned:
    """Return the message of this number of a publisher."""
    chance = random.Random(f"{seed} {publisher} {number}")
    [kind] = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
    queue = EXPIRING if kind is Kind.EXPIRED else chance.choice(CONSUMED)
    size = _size(chance)
    body = (chance.randbytes(min(size, 4096)) * (size // 4096 + 1))[:size]
    return Planned(kind, queue, body, 0.05 if kind is Kind.PERISHABLE else None)


def _size(chance: random.Random) -> int:
    draw, smallest = chance.random(), 1
    for share, largest in SIZES:
        if draw < share or largest == SIZES[-1][1]:
            return round(smallest * (largest / smallest) ** chance.random())
        draw, smallest = draw - share, largest
    raise AssertionError
