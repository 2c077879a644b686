"""Moves what a queue gave up to its dead-letter queue, with the past that RabbitMQ would write on it."""

import logging
import time
from typing import Any

from ami.transports.objectstore.broker.broker_storage import Site
from ami.transports.objectstore.broker.declarations import Layout
from ami.transports.objectstore.broker.envelope import Envelope, seal, unseal
from ami.transports.objectstore.queue.commands import Ack, Enqueue
from ami.transports.objectstore.queue.entry import Entry

log = logging.getLogger(__name__)

#: Why a message is set aside that cannot be read.
DAMAGED = "damaged"

#: So many at once, then the worker looks after its other work.
AT_ONCE = 100


def bury(site: Site, queue: str) -> int:
    """Move what is buried in ``queue`` to where its dead letters go; return how many were moved.

    It is stored there, under an id made of this death, before it is removed here: a crash between the two leaves it in
    both, and the second move is stored once. What no binding of the dead-letter exchange takes stays where it is.
    """
    layout = site.catalogue.current()
    record = layout.queues.get(queue)
    if record is None or record.dead_letters is None:
        return 0
    store, moved = site.store(queue), 0
    with store.lock:
        given_up = list(store.look().buried.values())[:AT_ONCE]
    for entry in given_up:
        if entry.buried == DAMAGED:
            continue  # Nobody can read it: it stays for `python -m ami.transports.objectstore check`.
        envelope = unseal(store.payload(entry))
        targets = _targets(layout, record.dead_letters, envelope)
        if not targets:
            if site.is_news(f"{queue} {entry.id}"):
                log.warning("%s: no dead-letter queue takes message %s; it stays buried here.", queue, entry.id)
            continue
        _mark(envelope, queue, entry)
        for target in targets:
            # Its place in this queue is its own, also when a replayed message of the same id dies again.
            site.store(target).commit([Enqueue(f"{queue}:{entry.order}:{entry.id}", seal(envelope))])
            site.bell(target).ring()
        store.commit([Ack(entry.id)], durable=False)
        moved += 1
    return moved


def _targets(layout: Layout, letters: tuple[str, str | None], envelope: Envelope) -> list[str]:
    exchange, key = letters
    return layout.route(exchange, envelope["properties"]["delivery_info"]["routing_key"] if key is None else key)


def _mark(envelope: Envelope, queue: str, entry: Entry) -> None:
    """Add an ``x-death`` as https://www.rabbitmq.com/docs/dlx describes it, the newest first."""
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
    headers["x-death"] = [death, *headers.get("x-death", ())]
    for name in ("reason", "queue", "exchange"):
        headers.setdefault(f"x-first-death-{name}", death[name])
    envelope["properties"].pop("expiration", None)
