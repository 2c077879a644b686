"""What is done to the messages of one queue: look at them, wait until it is empty, delete them, move some of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from kombu import Connection

from ami.admission import moves, purges, waiting_calls
from ami.celery import storable
from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth
from ami.celery.message_copy import confirming_channel, copy
from ami.celery.origin import BEAT
from ami.queues import dead_letters, waiting_rows
from ami.queues.dead_letters import DeadLetter
from ami.queues.letters import both
from ami.queues.letters.publishing import DEFAULT_EXCHANGE
from ami.queues.models import TaskRun, TickClaim, Worker
from ami.queues.refusals import Refused
from ami.queues.targets import queue_target
from ami.queues.ticks import DatabaseTickClaims
from ami.queues.wishes import Operator, refuse_wrong
from ami.topology import broker
from ami.topology.topology import Topology

#: A look at a work queue counts as a delivery of each message seen; beyond this share of the limit it is refused.
MOST_PEEKED = 20
NEAR_LIMIT = 0.5
DRAIN_POLL_SECONDS = 0.5
#: By this share of what waits may the number differ that a user gives to purge a queue.
SHARE = 0.1


@dataclass(frozen=True)
class Peeked:
    """The oldest messages of a queue, then calls that wait for it as rows (their reason is ``row``).

    ``cost`` says what the look did to the messages, empty if nothing.
    """

    messages: tuple[DeadLetter, ...]
    cost: str = ""


@dataclass(frozen=True)
class Moved:
    """How many messages were moved, and how many were looked at and put back at the end of their queue.

    ``calls`` is how many calls that wait as rows were moved beside them.
    """

    moved: int = 0
    passed: int = 0
    calls: int = 0


def peek(topology: Topology, connection: Connection, queue: str, limit: int = MOST_PEEKED) -> Peeked:
    """Return the oldest messages of a queue, and of the calls that wait for it as rows; they stay there.

    Raises:
        Refused: no such queue, or a message is near its delivery limit: on RabbitMQ's work queues a look counts.
    """
    refuse_unknown(topology, queue)
    limit = min(limit, MOST_PEEKED)
    counts = kind_of(connection).is_managed and queue not in dead_letters.burial_queues(topology)
    if not counts:
        found = both.oldest(connection, queue, limit)
        return Peeked((*found, *waiting_rows.oldest(queue, limit - len(found))))
    most = int(broker.DELIVERY_LIMIT * NEAR_LIMIT)
    with connection.clone() as own:
        channel = own.channel()
        found = []
        while len(found) < limit and (raw := channel.basic_get(queue, no_ack=False)) is not None:
            message = channel.message_to_python(raw)
            seen = storable.count((message.headers or {}).get("x-delivery-count"))
            if seen >= most:
                raise Refused(
                    f"A message of {queue} was delivered {seen} times before; a look counts as a delivery, and at "
                    f"{broker.DELIVERY_LIMIT} it is buried. Nothing more was looked at."
                )
            found.append(dead_letters.letter(queue, message))
    cost = f"one of {broker.DELIVERY_LIMIT} deliveries of each message shown" if found else ""
    return Peeked((*found, *waiting_rows.oldest(queue, limit - len(found))), cost)


def waiting(connection: Connection, queue: str) -> int:
    """Return how many messages of a queue are ready."""
    with connection.channel() as channel:
        return depth(channel, queue)[0]


def drain(
    topology: Topology,
    connection: Connection,
    queue: str,
    seconds: float,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> tuple[int, int]:
    """Wait until a queue is empty and its workers run nothing for two seconds; return what is left, both 0 when done.

    ``progress`` receives what waits, messages and calls that are rows, and the listed running tasks at each look.

    Raises:
        Refused: no such queue.
    """
    queue_target(topology, queue)
    deadline = time.monotonic() + seconds
    empty_since: float | None = None
    while True:
        left = waiting(connection, queue) + waiting_calls.count(queue), _running(queue)
        progress(*left)
        now = time.monotonic()
        empty_since = (empty_since or now) if left == (0, 0) else None
        if now >= deadline or (empty_since is not None and now - empty_since >= min(2.0, seconds)):
            return left
        time.sleep(DRAIN_POLL_SECONDS)


def purgeable(connection: Connection, queue: str) -> int:
    """Return how many messages and calls a purge would delete now."""
    return waiting(connection, queue) + waiting_calls.count(queue)


def purge(
    topology: Topology,
    connection: Connection,
    queue: str,
    operator: Operator,
    *,
    why: str = "",
    expected: int | None = None,
) -> int:
    """Delete every ready message of a queue, and the calls that wait for it as rows; return how many.

    Ticks that waited there have ended.

    Raises:
        Refused: no such queue, ``why`` is too long, or not about ``expected`` wait, the number that the user gave.
    """
    refuse_unknown(topology, queue)
    refuse_wrong(why, None)
    if expected is not None and abs((found := purgeable(connection, queue)) - expected) > found * SHARE:
        raise Refused(
            f"{found} wait in {queue}, and {expected} were given: nothing was deleted. Give the number that waits; "
            "pause the queue first where it changes."
        )
    # Before the purge: a tick that is sent after it waits, and must not count as ended.
    ticks = waiting_tick_ids(topology, queue)
    if queue in dead_letters.burial_queues(topology):
        count = both.discard(connection, queue)
    else:
        with connection.channel() as channel:
            count = int(channel.queue_purge(queue) or 0)
    DatabaseTickClaims().ended(ticks)
    calls = purges.purge(queue)
    after = {"purged": count, **({"calls": calls} if calls else {})}
    operator.record("purge", which=f"queue {queue}", after=after, why=why)
    return count + calls


def waiting_tick_ids(topology: Topology, queue: str) -> list[str]:
    """Return the ids of beat's tasks that are routed to a queue and are not known to run or to have ended."""
    running = TaskRun.objects.filter(ended_at=None).values("task_id")
    claims = TickClaim.objects.filter(ended_at=None, is_sent=True).exclude(task_id__in=running).select_related("entry")
    return [claim.task_id for claim in claims if topology.place(claim.entry.task, BEAT).queue == queue]


def move(
    topology: Topology,
    connection: Connection,
    source: str,
    destination: str,
    operator: Operator,
    *,
    why: str = "",
    task: str = "",
    headers: Mapping[str, str] = MappingProxyType({}),
    limit: int | None = None,
    progress: Callable[[Moved], None] = lambda _: None,
) -> Moved:
    """Move the messages of one task, or with certain headers, to another queue; without either, any message.

    AMQP cannot select: every message that was in front is taken, and one that does not match is published again at the
    end of its queue. Each is confirmed there before it is acknowledged here, so that a crash leaves one message twice
    and none lost; run again, it goes on. What arrives meanwhile is not looked at. A retry is routed by its name again.
    Calls that wait as rows are moved after the messages.

    Raises:
        Refused: a queue is unknown, both are the same, or ``why`` is too long.
        amqp.exceptions.AMQPError: a publish was refused; that message stays where it was.
    """
    queue_target(topology, source)
    queue_target(topology, destination)
    if source == destination:
        raise Refused(f"{source} is where the messages are; name another queue as the destination.")
    refuse_wrong(why, None)
    done = Moved()

    def count(now: Moved) -> None:
        nonlocal done
        done = now
        progress(now)

    try:
        _move(connection, source, destination, lambda message: _fits(message, task, headers), limit, count)
        left = None if limit is None else limit - done.moved
        messages_moved = done
        moves.move(
            source,
            destination,
            task=task,
            headers=headers,
            limit=left,
            progress=lambda calls: count(replace(messages_moved, calls=calls)),
        )
    finally:
        # What was moved before an error stays moved.
        operator.record("move", which=f"queue {source} to {destination}", after=asdict(done), why=why)
    return done


def _move(
    connection: Connection,
    source: str,
    destination: str,
    fits: Callable[[Any], bool],
    limit: int | None,
    progress: Callable[[Moved], None],
) -> None:
    most = waiting(connection, source)
    moved = passed = 0
    with confirming_channel(connection) as channel:
        while moved + passed < most and (limit is None or moved < limit):
            raw = channel.basic_get(source, no_ack=False)
            if raw is None:
                break
            message = channel.message_to_python(raw)
            does_fit = fits(message)
            # By the queue's own name: after a rollback another queue has its routing key.
            copy(channel, message, DEFAULT_EXCHANGE, destination if does_fit else source, {})
            channel.basic_ack(message.delivery_tag)
            moved, passed = moved + does_fit, passed + (not does_fit)
            progress(Moved(moved, passed))


def _fits(message: Any, task: str, headers: Mapping[str, str]) -> bool:
    given = message.headers or {}
    return (not task or given.get("task") == task) and moves.have(given, headers)


def refuse_unknown(topology: Topology, queue: str) -> None:
    """Raise `Refused` for what is neither a consumed queue nor one that keeps dead letters."""
    if queue not in dead_letters.burial_queues(topology):
        queue_target(topology, queue)


def _running(queue: str) -> int:
    return sum(len(row.running) for row in Worker.objects.all() if queue in row.queues)
