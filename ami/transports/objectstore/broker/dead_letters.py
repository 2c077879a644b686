"""Moves a queue's buried messages to its dead-letter queue, with the ``x-death`` header that RabbitMQ writes."""

import time
from contextlib import suppress
from typing import Any

from ami.transports.objectstore.broker import expiry_marks
from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import Declarations, QueueRecord
from ami.transports.objectstore.broker.envelope import Envelope, seal, unseal
from ami.transports.objectstore.broker.queue_writer import expires, store_messages
from ami.transports.objectstore.queue.commands import Ack, Enqueue
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.state import REJECTED
from ami.transports.objectstore.storage.errors import DamageError, JQueueError, StorageError, StorageFullError

#: Why a message is buried that cannot be read.
DAMAGED = "damaged"

#: The most that one call moves, so that the worker gets on with its other work.
AT_ONCE = 100


def move_dead_letters(broker: BrokerStorage, queue: str) -> int:
    """Move what is buried in ``queue`` to its dead-letter queue; return how many messages were moved.

    A message is stored there, under an id made of this death, before it is removed here. A crash between the two leaves
    it in both, and the second move is deduplicated by its id. A message that no binding takes stays buried here; so
    does one that its dead-letter queue refuses, until a pause is over.
    """
    declarations = broker.declarations.current()
    record = declarations.queues.get(queue)
    if record is None or record.dead_letters is None:
        return 0
    exchange, key = record.dead_letters
    # Where all its letters go; unknown where each keeps its own routing key.
    targets = [] if key is None else declarations.route(exchange, key)
    if any(map(broker.refused_letters.is_pausing, targets)):
        return 0
    store, moved = broker.store(queue), 0
    with store.lock:
        # A damaged message cannot be read: it stays for `python -m ami.transports.objectstore check`.
        buried = [entry for entry in store.look().buried.values() if entry.buried != DAMAGED]
    for entry in _next_in_turn(buried, broker.last_letters.get(queue)):
        try:
            moved += _move(broker, declarations, record.dead_letters, queue, entry)
        except StorageError as error:
            if error.cause is not None and not isinstance(error, StorageFullError | DamageError):
                raise
            # It stays buried here, and is moved when its dead-letter queue accepts messages again, if it is a message.
            broker.log_once(f"Dead letters of {queue} are not moved: {error}", queue=queue)
        if any(map(broker.refused_letters.is_pausing, targets)):
            break  # It is the first of the next time.
        broker.last_letters[queue] = entry.id
    return moved


def _next_in_turn(buried: list[Entry], last: str | None) -> list[Entry]:
    """Return up to `AT_ONCE` after the one that was tried last: those that stay do not hold up the others."""
    after = next((number for number, entry in enumerate(buried, 1) if entry.id == last), 0)
    return (buried[after:] + buried[:after])[:AT_ONCE]


def _move(
    broker: BrokerStorage, declarations: Declarations, letters: tuple[str, str | None], queue: str, entry: Entry
) -> bool:
    store = broker.store(queue)
    envelope = unseal(store.payload(entry))
    targets = [
        each for each in _targets(declarations, letters, envelope) if not _is_cycle(envelope, queue, entry, each)
    ]
    if any(map(broker.refused_letters.is_pausing, targets)):
        return False
    if not targets:
        broker.log_once(
            f"No dead-letter queue for message {entry.id} of {queue}; it stays buried there",
            queue=queue,
            message_id=entry.id,
        )
        return False
    _mark(envelope, queue, entry)
    exchange, key = letters
    envelope["properties"]["delivery_info"].update(
        exchange=exchange, routing_key=_own_key(envelope) if key is None else key
    )
    for target in targets:
        # The order makes the id unique, also when a replayed message of the same id dies again.
        letter = _letter(f"{queue}:{entry.order}:{entry.id}", envelope, declarations.queues[target])
        if not _is_stored(broker, queue, target, letter, declarations.queues[target]):
            broker.log_once(f"Dead-letter queue {target} is full; dead letters stay buried in {queue}", queue=queue)
            return False
    store.commit([Ack(entry.id)], durable=False)
    return True


def _letter(name: str, envelope: Envelope, record: QueueRecord) -> Enqueue:
    """Return what stores a dead letter, which expires as any message of the queue: it may be one of a chain."""
    return Enqueue(name, seal(envelope), expires=expires(envelope["properties"], record))


def _is_stored(broker: BrokerStorage, queue: str, target: str, letter: Enqueue, record: QueueRecord) -> bool:
    """Store a dead letter of ``queue``, unless its target refuses it. Raises StorageError."""
    is_stored = False
    try:
        [is_stored] = store_messages(broker, target, [letter], record, durable=True)
    finally:
        if is_stored:
            broker.refused_letters.accepted(target)
        else:
            pause = broker.refused_letters.refused(target)
            # The queue may have no consumer that would try again.
            with suppress(JQueueError):
                broker.expiry_marks.mark(queue, time.time() + pause + expiry_marks.AHEAD_SECONDS)
    return is_stored


def _targets(declarations: Declarations, letters: tuple[str, str | None], envelope: Envelope) -> list[str]:
    exchange, key = letters
    return declarations.route(exchange, _own_key(envelope) if key is None else key)


def _own_key(envelope: Envelope) -> str:
    return str(envelope["properties"]["delivery_info"]["routing_key"])


def _is_cycle(envelope: Envelope, queue: str, entry: Entry, target: str) -> bool:
    """Whether a message would come to a queue again though no consumer rejected it: it would go round for ever."""
    deaths = envelope["headers"].get("x-death")
    past = [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
    for death in [{"queue": queue, "reason": entry.buried}, *past]:
        if death.get("reason") == REJECTED:
            return False
        if death.get("queue") == target:
            return True
    return False


def _mark(envelope: Envelope, queue: str, entry: Entry) -> None:
    """Add an ``x-death`` as https://www.rabbitmq.com/docs/dlx describes it, the newest first.

    One for each queue and reason, which counts.
    """
    info = envelope["properties"]["delivery_info"]
    headers: dict[str, Any] = envelope["headers"]
    death = {
        "reason": entry.buried,
        "queue": queue,
        "exchange": info["exchange"],
        "routing-keys": [info["routing_key"]],
        "count": 1,
        "time": int(time.time()),
    }
    others = []
    for earlier in _earlier(headers):
        if (earlier.get("queue"), earlier.get("reason")) == (queue, entry.buried):
            count = earlier.get("count")
            death |= {**earlier, "count": (count if isinstance(count, int) else 1) + 1}
        else:
            others.append(earlier)
    headers["x-death"] = [death, *others]
    for name in ("reason", "queue", "exchange"):
        headers.setdefault(f"x-first-death-{name}", death[name])
    if (expiration := envelope["properties"].pop("expiration", None)) is not None:
        death.setdefault("original-expiration", expiration)


def _earlier(headers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the deaths that a message has on it; a publisher may have written anything there."""
    found = headers.get("x-death")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
