"""Bindings: which queues a message reaches."""

from typing import Any

from tests.support.transports.amqp_probes.session import Session, probe, text

PATTERNS = ("a.b", "a.*", "*.b", "#", "a.#", "#.b", "*", "*.*", "a.#.b", "", "#.#", "*.#")
KEYS = ("a.b", "a", "", "a.x.b", "b", "a..b", "a.b.", "*", "#")


def _reached(session: Session, kind: str, patterns: Any, keys: Any) -> dict[str, Any]:
    exchange = session.exchange(kind)
    queues = [session.queue(f"q{number}") for number in range(len(patterns))]
    for queue, pattern in zip(queues, patterns, strict=True):
        session.channel.queue_bind(queue, exchange, pattern)
    for number, key in enumerate(keys):
        session.publish(str(number), key, exchange)
    found: dict[str, list[str]] = {}
    for queue, pattern in zip(queues, patterns, strict=True):
        found[pattern] = session.bodies(queue, session.depth(queue))
    return found


@probe
def direct_bindings(session: Session) -> Any:
    return _reached(session, "direct", ("a", "b", "", "a.*"), ("a", "b", "", "c", "a.*", "a.x"))


@probe
def topic_bindings(session: Session) -> Any:
    return _reached(session, "topic", PATTERNS, KEYS)


@probe
def fanout_bindings(session: Session) -> Any:
    return _reached(session, "fanout", ("a", ""), ("a", "z"))


@probe
def default_exchange(session: Session) -> Any:
    queue = session.queue()
    session.publish("by name", queue)
    message = session.get(queue)
    return text(message), message.delivery_info["exchange"], message.delivery_info["routing_key"] == queue


@probe
def bind_to_default_exchange(session: Session) -> Any:
    queue = session.queue()
    return session.attempt(session.channel.queue_bind, queue, "", "key")


@probe
def standard_exchanges(session: Session) -> Any:
    queue, seen = session.queue(), []
    for kind in ("direct", "topic", "fanout"):
        session.channel.queue_bind(queue, f"amq.{kind}", session.name("k"))
        session.publish(kind, session.name("k"), f"amq.{kind}")
        seen += session.bodies(queue, 1)
        session.channel.queue_unbind(queue, f"amq.{kind}", session.name("k"))
    return seen


@probe
def binding_twice_delivers_once(session: Session) -> Any:
    exchange, queue = session.exchange("topic"), session.queue()
    for pattern in ("a.b", "a.b", "a.*", "#"):
        session.channel.queue_bind(queue, exchange, pattern)
    session.publish("once", "a.b", exchange)
    return session.bodies(queue, 1)


@probe
def unbinding_and_binding_again(session: Session) -> Any:
    exchange, queue = session.exchange("direct"), session.queue()
    session.channel.queue_bind(queue, exchange, "k")
    session.channel.queue_unbind(queue, exchange, "k")
    session.publish("lost", "k", exchange)
    session.channel.queue_bind(queue, exchange, "k")
    session.publish("kept", "k", exchange)
    return session.bodies(queue, 1)


@probe
def unbinding_what_is_not_bound(session: Session) -> Any:
    exchange, queue = session.exchange("direct"), session.queue()
    return session.attempt(session.channel.queue_unbind, queue, exchange, "k")


@probe
def bind_missing_queue(session: Session) -> Any:
    return session.attempt(session.channel.queue_bind, session.name("none"), session.exchange("direct"), "k")


@probe
def bind_to_missing_exchange(session: Session) -> Any:
    return session.attempt(session.channel.queue_bind, session.queue(), session.name("none"), "k")


@probe
def alternate_exchange(session: Session) -> Any:
    other = session.exchange("fanout", "other")
    first = session.exchange("direct", arguments={"alternate-exchange": other})
    bound, rest = session.queue("bound"), session.queue("rest")
    session.channel.queue_bind(bound, first, "k")
    session.channel.queue_bind(rest, other, "")
    session.publish("one", "k", first)
    session.publish("two", "z", first)
    message = session.get(rest)
    info = message.delivery_info
    return session.bodies(bound, 1), text(message), info["exchange"] == first, info["routing_key"]


@probe
def exchange_to_exchange(session: Session) -> Any:
    first, second = session.exchange("direct"), session.exchange("fanout", "y")
    try:
        return session.attempt(session.channel.exchange_bind, second, first, "k")
    except NotImplementedError:
        return "not implemented"


@probe
def deleted_exchange_takes_its_bindings_with_it(session: Session) -> Any:
    exchange, queue = session.exchange("direct"), session.queue()
    session.channel.queue_bind(queue, exchange, "k")
    session.channel.exchange_delete(exchange)
    session.exchange("direct")
    session.publish("lost", "k", exchange)
    return session.depth(queue)


@probe
def deleted_queue_takes_its_bindings_with_it(session: Session) -> Any:
    exchange, queue = session.exchange("direct"), session.queue()
    session.channel.queue_bind(queue, exchange, "k")
    session.channel.queue_delete(queue)
    session.queue()
    session.publish("lost", "k", exchange)
    return session.depth(queue)
