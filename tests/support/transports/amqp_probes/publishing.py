"""Publishing: what arrives of a message."""

from typing import Any

from kombu import Producer

from tests.support.transports.amqp_probes.session import Session, probe, text

EVERY_BYTE = bytes(range(256))

PROPERTIES = {
    "message_id": "m1",
    "correlation_id": "c1",
    "reply_to": "r1",
    "type": "t1",
    "app_id": "a1",
    "cluster_id": "",
    "delivery_mode": 2,
    "timestamp": 1700000000,
}


@probe
def properties_arrive(session: Session) -> Any:
    queue = session.queue()
    session.publish("x", queue, properties=dict(PROPERTIES))
    found = session.get(queue).properties
    return {name: str(found.get(name)) for name in PROPERTIES if PROPERTIES[name]}


@probe
def properties_hold_nothing_else(session: Session) -> Any:
    queue = session.queue()
    session.publish("x", queue, properties={"message_id": "m1"})
    own = {"content_type", "content_encoding", "application_headers", "body_encoding", "delivery_info", "delivery_tag"}
    return sorted(set(session.get(queue).properties) - own - {"priority"})


@probe
def headers_arrive(session: Session) -> Any:
    headers = {"text": "ünï", "number": 7, "real": 1.5, "yes": True, "none": None, "list": [1, "a"], "map": {"k": [2]}}
    queue = session.queue()
    session.publish("x", queue, headers=headers)
    found = session.get(queue).headers
    return {name: found.get(name) for name in headers}


@probe
def content_type_and_encoding_arrive(session: Session) -> Any:
    queue = session.queue()
    session.publish("{}", queue, content_type="application/json", content_encoding="utf-8")
    message = session.get(queue)
    return message.content_type, message.content_encoding


@probe
def body_of_every_byte(session: Session) -> Any:
    queue = session.queue()
    session.publish(EVERY_BYTE, queue, content_type="application/octet-stream", content_encoding="binary")
    return bytes(session.get(queue).body) == EVERY_BYTE


@probe
def empty_body(session: Session) -> Any:
    queue = session.queue()
    session.publish(b"", queue, content_type="application/octet-stream", content_encoding="binary")
    return len(session.get(queue).body or b"")


@probe
def body_of_a_megabyte(session: Session) -> Any:
    queue = session.queue()
    session.publish("x" * 1024**2, queue)
    return len(session.get(queue).body)


@probe
def payloads_of_each_serializer(session: Session) -> Any:
    queue, seen = session.queue(), []
    for serializer in ("json", "yaml", "raw"):
        body = b"raw" if serializer == "raw" else "ünï"
        Producer(session.channel).publish(body, routing_key=queue, serializer=serializer)
        message = session.get(queue)
        message.accept = {message.content_type}
        seen.append((message.content_type, str(message.decode())))
    return seen


@probe
def three_messages_of_one_id(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a", "b", "c", properties={"message_id": "same"})
    return session.bodies(queue, 3) if session.depth(queue, 3) == 3 else session.depth(queue)


@probe
def republishing_a_delivered_message(session: Session) -> Any:
    first, second = session.queue("q1"), session.queue("q2")
    session.publish("x", first, headers={"h": 1})
    described = ("application_headers", "content_type", "content_encoding", "delivery_info", "delivery_tag")
    for source, target in ((first, second), (second, first)):
        message = session.get(source)
        known = {name: message.properties[name] for name in message.properties if name not in described}
        Producer(session.channel).publish(
            message.body,
            routing_key=target,
            content_type="text/plain",
            content_encoding="utf-8",
            headers=message.headers,
            **known,
        )
    return session.depth(first, 1)


@probe
def publish_to_missing_exchange(session: Session) -> Any:
    return session.attempt(session.publish, "x", "k", session.name("none"))


@probe
def publish_without_route(session: Session) -> Any:
    return session.attempt(session.publish, "x", "k", session.exchange("direct"))


@probe
def mandatory_without_route(session: Session) -> Any:
    return session.attempt(session.publish, "x", "k", session.exchange("direct"), mandatory=True)


@probe
def mandatory_with_route(session: Session) -> Any:
    queue = session.queue()
    session.publish("x", queue, mandatory=True)
    return session.bodies(queue, 1)


@probe
def routing_key_of_300_bytes(session: Session) -> Any:
    connection = session.connection.clone()
    other = Session(connection, session.prefix)
    try:
        return other.attempt(other.publish, "x", "k" * 300, other.exchange("fanout")) != "done"
    finally:
        session.attempt(connection.release)


@probe
def priorities(session: Session) -> Any:
    queue = session.queue(arguments={"x-max-priority": 5})
    for priority in (0, 5, 3, None, 1):
        session.publish(str(priority), queue, priority=priority)
    return session.bodies(queue, 5)


@probe
def priority_above_the_maximum_is_the_maximum(session: Session) -> Any:
    queue = session.queue(arguments={"x-max-priority": 5})
    for body, priority in (("a", 5), ("b", 9), ("c", 200), ("d", 4)):
        session.publish(body, queue, priority=priority)
    return session.bodies(queue, 4)


@probe
def priority_without_maximum(session: Session) -> Any:
    queue = session.queue()
    session.publish("low", queue, priority=0)
    session.publish("high", queue, priority=9)
    return session.bodies(queue, 2)


@probe
def transient_message_arrives(session: Session) -> Any:
    queue = session.queue()
    session.publish("x", queue, properties={"delivery_mode": 1})
    message = session.get(queue)
    return text(message), message.properties.get("delivery_mode")


@probe
def invalid_expiration(session: Session) -> Any:
    queue = session.queue()
    return [session.attempt(session.publish, "x", queue, properties={"expiration": one}) for one in ("soon", "-1")]


@probe
def full_queue_rejects_the_publish(session: Session) -> Any:
    queue = session.queue(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    answers = [session.attempt(session.publish, body, queue) for body in "abc"]
    first = session.bodies(queue, 2)
    return answers, first, session.attempt(session.publish, "d", queue)


@probe
def full_queue_of_two_rejects_alone(session: Session) -> Any:
    exchange = session.exchange("fanout")
    full = session.queue("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    other = session.queue("other")
    for queue in (full, other):
        session.channel.queue_bind(queue, exchange, "")
    return session.attempt(session.publish, "x", "", exchange), session.depth(full), session.bodies(other, 1)


@probe
def full_queue_drops_its_head(session: Session) -> Any:
    queue = session.queue(arguments={"x-max-length": 2})
    session.fill(queue, "a", "b", "c", "d")
    return session.bodies(queue, 2)


@probe
def queue_of_length_0_keeps_nothing(session: Session) -> Any:
    queue = session.queue(arguments={"x-max-length": 0})
    session.fill(queue, "a")
    return session.depth(queue)


@probe
def unacknowledged_do_not_fill_a_queue(session: Session) -> Any:
    queue = session.queue(arguments={"x-max-length": 1})
    session.fill(queue, "a")
    held = session.get(queue, no_ack=False)
    session.fill(queue, "b")
    depth = session.depth(queue)
    held.requeue()
    return depth, session.bodies(queue, 1)
