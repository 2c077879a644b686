"""Declaring, counting, purging and deleting."""

from typing import Any

from kombu import Exchange, Queue

from tests.support.transports.amqp_probes.session import Session, probe

#: The most bytes of a name.
LONG = 255


@probe
def redeclare_equal_queue(session: Session) -> Any:
    queue = session.queue(arguments={"x-message-ttl": 60000})
    return session.attempt(session.queue, arguments={"x-message-ttl": 60000}), session.depth(queue)


@probe
def redeclare_queue_not_durable(session: Session) -> Any:
    session.queue()
    return session.attempt(session.queue, durable=False)


@probe
def redeclare_queue_with_other_arguments(session: Session) -> Any:
    session.queue(arguments={"x-message-ttl": 1000})
    return session.attempt(session.queue, arguments={"x-message-ttl": 2000})


@probe
def redeclare_queue_auto_delete(session: Session) -> Any:
    session.queue()
    return session.attempt(session.queue, auto_delete=True)


@probe
def redeclaring_counts_messages(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a", "b")
    return session.channel.queue_declare(queue=queue, durable=True, auto_delete=False).message_count


@probe
def passive_declaration_counts_messages_and_consumers(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a", "b")
    counted = session.channel.queue_declare(queue=queue, passive=True)
    return counted.message_count, counted.consumer_count


@probe
def passive_declaration_of_missing_queue(session: Session) -> Any:
    return session.attempt(session.channel.queue_declare, queue=session.name("none"), passive=True)


@probe
def passive_declaration_of_missing_exchange(session: Session) -> Any:
    return session.attempt(session.channel.exchange_declare, session.name("none"), "direct", passive=True)


@probe
def exchange_of_another_type(session: Session) -> Any:
    session.exchange("direct")
    return session.attempt(session.exchange, "direct"), session.attempt(session.exchange, "topic")


@probe
def exchange_not_durable_any_more(session: Session) -> Any:
    session.exchange("direct")
    return session.attempt(session.exchange, "direct", durable=False)


@probe
def exchange_of_unknown_type(session: Session) -> Any:
    connection = session.connection.clone()
    try:
        return session.attempt(connection.channel().exchange_declare, session.name("x"), "antenna", durable=True)
    finally:
        session.attempt(connection.release)


@probe
def exchange_of_headers_type(session: Session) -> Any:
    return session.attempt(session.exchange, "headers")


@probe
def server_names_a_queue(session: Session) -> Any:
    first = session.channel.queue_declare(queue="", exclusive=True).queue
    second = session.channel.queue_declare(queue="", exclusive=True).queue
    return first.startswith("amq.gen-"), first != second


@probe
def reserved_queue_name(session: Session) -> Any:
    return session.attempt(session.channel.queue_declare, queue="amq.probe")


@probe
def reserved_exchange_name(session: Session) -> Any:
    return session.attempt(session.channel.exchange_declare, "amq.probe", "direct")


@probe
def odd_names(session: Session) -> Any:
    seen = []
    for name in (".", "..", "a/b", "../up", "%2E", "sp ace", "ünï", "%", "~", ".hidden", "CON"):
        session.channel.queue_declare(queue=name, durable=True, auto_delete=False)
        session.fill(name, "one " + name)
        seen.append(session.get(name).body is not None)
        session.fill(name, "two")
        seen.append(session.channel.queue_delete(queue=name))
    return seen


@probe
def deleting_dots_spares_other_queues(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "kept")
    for name in (".", ".."):
        session.channel.queue_declare(queue=name, durable=True, auto_delete=False)
        session.channel.queue_delete(queue=name)
    return session.bodies(queue, 1)


@probe
def name_of_255_bytes(session: Session) -> Any:
    name = session.name("").ljust(LONG, ":")
    session.channel.queue_declare(queue=name, durable=True, auto_delete=False)
    session.fill(name, "long")
    return len(name.encode()), session.bodies(name, 1), session.channel.queue_delete(queue=name)


@probe
def name_of_300_bytes(session: Session) -> Any:
    connection = session.connection.clone()
    try:
        channel = connection.channel()
        refused = session.attempt(channel.queue_declare, queue="n" * 300, durable=True) != "done"
    finally:
        session.attempt(connection.release)
    return refused, session.attempt(session.queue, "later")


@probe
def delete_returns_number_of_messages(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a", "b")
    return session.depth(queue, 2), session.channel.queue_delete(queue=queue)


@probe
def delete_missing_queue(session: Session) -> Any:
    return session.channel.queue_delete(queue=session.name("none"))


@probe
def delete_if_empty(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a")
    refused = session.attempt(session.channel.queue_delete, queue=queue, if_empty=True)
    left = session.bodies(queue, 1)
    return refused, left, session.attempt(session.channel.queue_delete, queue=queue, if_empty=True)


@probe
def delete_if_unused(session: Session) -> Any:
    queue = session.queue()
    session.consume(queue, lambda _: None, channel=session.open_channel())
    session.open_channel()
    refused = session.attempt(session.channel.queue_delete, queue=queue, if_unused=True)
    return refused, session.depth(queue)


@probe
def delete_exchange_if_unused(session: Session) -> Any:
    exchange, queue = session.exchange("direct"), session.queue()
    session.channel.queue_bind(queue, exchange, "k")
    refused = session.attempt(session.channel.exchange_delete, exchange, if_unused=True)
    session.channel.queue_unbind(queue, exchange, "k")
    return refused, session.attempt(session.channel.exchange_delete, exchange, if_unused=True)


@probe
def purge_spares_unacknowledged(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a", "b", "c")
    held = session.get(queue, no_ack=False)
    count = session.channel.queue_purge(queue)
    held.requeue()
    return count, session.bodies(queue, 1)


@probe
def purge_missing_queue(session: Session) -> Any:
    return session.attempt(session.channel.queue_purge, session.name("none"))


@probe
def keywords_of_kombu_queue_reach_the_broker(session: Session) -> Any:
    names = {"message_ttl": 30.0, "max_length": 5, "max_priority": 3}
    queue = Queue(session.name("k"), Exchange(""), durable=True, **names)(session.channel)
    queue.declare()
    plain = {"x-message-ttl": 30000, "x-max-length": 5, "x-max-priority": 3}
    return session.attempt(session.queue, "k", arguments=plain), session.attempt(session.queue, "k")


@probe
def invalid_arguments(session: Session) -> Any:
    wrong = [
        {"x-message-ttl": -1},
        {"x-message-ttl": "soon"},
        {"x-max-length": -1},
        {"x-overflow": "explode"},
        {"x-expires": 0},
        {"x-max-priority": 300},
        {"x-dead-letter-routing-key": "k"},
        {"x-queue-type": "antenna"},
    ]
    return [session.attempt(session.queue, f"q{number}", arguments=each) for number, each in enumerate(wrong)]


@probe
def expiring_durable_queue(session: Session) -> Any:
    return session.attempt(session.queue, arguments={"x-expires": 60000})


@probe
def maximum_length_in_bytes(session: Session) -> Any:
    return session.attempt(session.queue, arguments={"x-max-length-bytes": 1000})


@probe
def exclusive_queue_of_another_connection(session: Session) -> Any:
    queue = session.queue(exclusive=True, durable=False)
    session.consume(queue, lambda _: None, channel=session.open_channel())
    with session.connection.clone() as other:
        return session.attempt(other.channel().queue_declare, queue=queue, exclusive=True, durable=False)


@probe
def exclusive_queue_ends_with_its_connection(session: Session) -> Any:
    with session.connection.clone() as other:
        other.channel().queue_declare(queue=session.name("e"), exclusive=True)
    return session.attempt(session.channel.queue_declare, queue=session.name("e"), passive=True)


@probe
def auto_delete_queue_ends_with_its_last_consumer(session: Session) -> Any:
    queue = session.queue(auto_delete=True, durable=False)
    first, second = (session.consume(queue, lambda _: None, tag=session.name(tag)) for tag in "ab")
    session.channel.basic_cancel(first)
    left = session.depth(queue)
    session.channel.basic_cancel(second)
    return left, session.attempt(session.channel.queue_declare, queue=queue, passive=True)


@probe
def auto_delete_exchange_ends_with_its_last_binding(session: Session) -> Any:
    exchange, queue = session.exchange("direct", auto_delete=True), session.queue()
    session.channel.queue_bind(queue, exchange, "k")
    session.channel.queue_unbind(queue, exchange, "k")
    return session.attempt(session.channel.exchange_declare, exchange, "direct", passive=True)
