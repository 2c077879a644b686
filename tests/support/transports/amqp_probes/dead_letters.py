"""Expiry, rejection, limits: which messages end in the dead-letter queue, and what is written on them."""

from typing import Any

from tests.support.transports.amqp_probes.session import Session, probe, text


def _dying(session: Session, **arguments: Any) -> tuple[str, str]:
    """Declare a queue and that of its dead letters; return both names."""
    letters = session.queue("dlq")
    exchange = session.exchange("direct", "dlx")
    session.channel.queue_bind(letters, exchange, "dead")
    given = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "dead"}
    return session.queue(arguments={**given, **arguments}), letters


def _letter(session: Session, queue: str, letters: str) -> Any:
    """Return the next dead letter; the queue is looked at meanwhile."""
    found: list[Any] = []
    session.wait(lambda: session.depth(queue) < 0 or found.extend(_none_or_one(session, letters)) or found)
    return found[0] if found else None


@probe
def expiry_without_anybody_looking(session: Session) -> Any:
    queue, letters = _dying(session)
    session.publish("x", queue, properties={"expiration": "30"})
    return text(session.get(letters))


def _deaths(message: Any) -> list[dict[str, Any]]:
    """Return what ``x-death`` says, without its time."""
    deaths = message.headers.get("x-death", [])
    return [{name: death[name] for name in sorted(death) if name != "time"} for death in deaths]


def _seen(message: Any) -> tuple[Any, ...]:
    firsts = {name: value for name, value in sorted(message.headers.items()) if name.startswith("x-first-death")}
    return text(message), _deaths(message), firsts, message.delivery_info["routing_key"]


@probe
def rejected_message(session: Session) -> Any:
    queue, letters = _dying(session)
    session.fill(queue, "x")
    session.get(queue, no_ack=False).reject()
    return _seen(session.get(letters))


@probe
def rejected_message_without_dead_letter_exchange(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "x")
    session.get(queue, no_ack=False).reject()
    return session.depth(queue)


@probe
def message_that_expires(session: Session) -> Any:
    queue, letters = _dying(session)
    session.publish("x", queue, properties={"expiration": "30"})
    message = _letter(session, queue, letters)
    return (*_seen(message), message.properties.get("expiration"))


@probe
def queue_that_expires_messages(session: Session) -> Any:
    queue, letters = _dying(session, **{"x-message-ttl": 30})
    session.fill(queue, "x", "y")
    return _seen(_letter(session, queue, letters)), _seen(_letter(session, queue, letters))


@probe
def shorter_of_two_expiries(session: Session) -> Any:
    queue, letters = _dying(session, **{"x-message-ttl": 60000})
    session.publish("x", queue, properties={"expiration": "30"})
    return text(_letter(session, queue, letters))


@probe
def expired_message_without_dead_letter_exchange(session: Session) -> Any:
    queue = session.queue(arguments={"x-message-ttl": 30})
    session.fill(queue, "x")
    return session.depth(queue, 0), session.get(queue, waits=False)


@probe
def expiry_of_0(session: Session) -> Any:
    queue, letters = _dying(session)
    session.publish("x", queue, properties={"expiration": "0"})
    return text(_letter(session, queue, letters))


@probe
def message_expires_behind_one_that_does_not(session: Session) -> Any:
    queue, letters = _dying(session)
    session.publish("stays", queue)
    session.publish("ends", queue, properties={"expiration": "1"})
    found: list[Any] = []
    session.wait(lambda: found.extend(_none_or_one(session, letters)) or found, seconds=0.2)
    return [text(one) for one in found], session.depth(queue)


def _none_or_one(session: Session, queue: str) -> list[Any]:
    message = session.get(queue, waits=False)
    return [] if message is None else [message]


@probe
def unacknowledged_message_does_not_expire(session: Session) -> Any:
    queue, letters = _dying(session)
    session.publish("x", queue, properties={"expiration": "200"})
    held = session.get(queue, no_ack=False)
    session.wait(lambda: False, seconds=0.3)
    before = session.depth(letters)
    held.requeue()
    return before, text(_letter(session, queue, letters))


@probe
def expiry_survives_requeueing(session: Session) -> Any:
    queue, letters = _dying(session, **{"x-message-ttl": 300})
    session.fill(queue, "x")
    session.get(queue, no_ack=False).requeue()
    return _deaths(_letter(session, queue, letters))


@probe
def head_dropped_by_the_maximum_length(session: Session) -> Any:
    queue, letters = _dying(session, **{"x-max-length": 1})
    session.fill(queue, "a", "b")
    message = _letter(session, queue, letters)
    return (*_seen(message), session.bodies(queue, 1))


@probe
def full_queue_that_rejects_buries_nothing(session: Session) -> Any:
    queue, letters = _dying(session, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    answers = [session.attempt(session.publish, body, queue) for body in "ab"]
    return answers, session.bodies(queue, 1), session.depth(letters)


@probe
def key_of_its_own_without_dead_letter_key(session: Session) -> Any:
    letters, exchange = session.queue("dlq"), session.exchange("direct", "dlx")
    queue = session.queue(arguments={"x-dead-letter-exchange": exchange})
    session.channel.queue_bind(letters, exchange, queue)
    session.fill(queue, "x")
    session.get(queue, no_ack=False).reject()
    message = session.get(letters)
    return text(message), message.delivery_info["routing_key"] == queue, message.delivery_info["exchange"] == exchange


@probe
def dead_letter_through_the_default_exchange(session: Session) -> Any:
    letters = session.queue("dlq")
    queue = session.queue(arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": letters})
    session.fill(queue, "x")
    session.get(queue, no_ack=False).reject()
    return _seen(session.get(letters))


@probe
def dead_letter_without_route(session: Session) -> Any:
    exchange = session.exchange("direct", "dlx")
    queue = session.queue(arguments={"x-dead-letter-exchange": exchange})
    session.fill(queue, "x")
    session.get(queue, no_ack=False).reject()
    return session.depth(queue), session.get(queue, waits=False)


@probe
def dying_twice_of_one_reason_counts(session: Session) -> Any:
    queue, letters = _dying(session)
    session.fill(queue, "x")
    session.get(queue, no_ack=False).reject()
    first = session.get(letters)
    session.publish("x", queue, headers={**first.headers})
    session.get(queue, no_ack=False).reject()
    return _deaths(session.get(letters))


@probe
def dying_in_two_queues(session: Session) -> Any:
    last = session.queue("last")
    middle = session.queue("middle", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": last})
    queue = session.queue(arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": middle})
    session.fill(queue, "x")
    session.get(queue, no_ack=False).reject()
    session.get(middle, no_ack=False).reject()
    return _seen(session.get(last))


@probe
def delivery_limit_of_a_quorum_queue(session: Session) -> Any:
    queue, letters = _dying(session, **{"x-queue-type": "quorum", "x-delivery-limit": 2})
    session.fill(queue, "x")
    counts = []
    for _ in range(3):
        message = session.get(queue, no_ack=False)
        counts.append((message.headers.get("x-delivery-count"), bool(message.delivery_info["redelivered"])))
        message.requeue()
    return counts, _deaths(session.get(letters))


@probe
def quorum_queue_redelivers_in_order(session: Session) -> Any:
    queue = session.queue(arguments={"x-queue-type": "quorum"})
    session.fill(queue, *"abc")
    held = [session.get(queue, no_ack=False) for _ in range(2)]
    held[0].requeue()
    held[1].requeue()
    return [text(session.get(queue)) for _ in range(3)]


@probe
def replayed_dead_letter_keeps_its_headers(session: Session) -> Any:
    queue, letters = _dying(session)
    session.publish("x", queue, headers={"h": 1}, properties={"message_id": "m", "correlation_id": "c"})
    session.get(queue, no_ack=False).reject()
    message = session.get(letters)
    names = ("message_id", "correlation_id")
    return message.headers.get("h"), [message.properties.get(name) for name in names], message.content_type
