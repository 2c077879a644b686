"""Consuming: order, prefetch, acknowledgements, and how consumers end."""

import time
from typing import Any

from tests.support.transports.amqp_probes.session import Session, probe, text


@probe
def messages_keep_their_order(session: Session) -> Any:
    queue, found = session.queue(), []
    session.fill(queue, *"abcdefgh")
    session.consume(queue, lambda message: (found.append(text(message)), message.ack()))
    session.drain(lambda: len(found) == 8)
    return found


@probe
def prefetch_bounds_what_is_delivered(session: Session) -> Any:
    queue, found = session.queue(), []
    session.fill(queue, *"abcde")
    session.channel.basic_qos(0, 2, False)
    session.consume(queue, found.append)
    session.drain(lambda: len(found) > 2, seconds=0.3)
    held = [text(one) for one in found]
    found[0].ack()
    session.drain(lambda: len(found) > 3, seconds=0.3)
    return held, [text(one) for one in found]


@probe
def consumer_without_acknowledgements_empties_the_queue(session: Session) -> Any:
    queue, found = session.queue(), []
    session.fill(queue, *"abc")
    session.consume(queue, found.append, no_ack=True)
    session.drain(lambda: len(found) == 3)
    found[0].ack()
    session.channel.basic_cancel(session.name("c"))
    return [text(one) for one in found], session.depth(queue)


@probe
def get_from_empty_queue(session: Session) -> Any:
    return session.channel.basic_get(session.queue()) is None


@probe
def get_from_missing_queue(session: Session) -> Any:
    return session.attempt(session.channel.basic_get, session.name("none"))


@probe
def consume_from_missing_queue(session: Session) -> Any:
    return session.attempt(session.consume, session.name("none"), print)


@probe
def got_message_shows_where_it_came_from(session: Session) -> Any:
    exchange, queue = session.exchange("direct"), session.queue()
    session.channel.queue_bind(queue, exchange, "k")
    session.publish("x", "k", exchange)
    info = session.get(queue).delivery_info
    return info["exchange"] == exchange, info["routing_key"], bool(info["redelivered"])


@probe
def requeued_message_is_redelivered_at_its_old_place(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, *"abc")
    session.get(queue, no_ack=False).requeue()
    found = [session.get(queue) for _ in range(3)]
    return [(text(one), bool(one.delivery_info["redelivered"])) for one in found]


@probe
def closed_channel_requeues_in_order(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, *"abc")
    session.get(queue, no_ack=False)
    session.get(queue, no_ack=False)
    session.close()
    found = [session.get(queue) for _ in range(3)]
    return [(text(one), bool(one.delivery_info["redelivered"])) for one in found]


@probe
def recover_requeues_what_is_not_acknowledged(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, *"ab")
    session.get(queue, no_ack=False)
    session.channel.basic_recover(requeue=True)
    return session.bodies(queue, 2)


@probe
def acknowledging_several(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, *"abcd")
    held = [session.get(queue, no_ack=False) for _ in range(4)]
    held[2].ack(multiple=True)
    session.close()
    return session.bodies(queue, 1)


@probe
def acknowledging_all(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, *"abc")
    for _ in range(3):
        session.get(queue, no_ack=False)
    session.channel.basic_ack(0, multiple=True)
    session.close()
    return session.depth(queue, 0)


def _answer(session: Session, step: Any, *arguments: Any, **options: Any) -> Any:
    """Return a step's outcome where the broker answers by an event, which the next request on the channel shows."""
    queue = session.queue("answer")
    channel = session.channel

    def run() -> None:
        step(*arguments, **options)
        channel.queue_declare(queue=queue, passive=True)

    return session.attempt(run)


@probe
def acknowledging_twice(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a")
    tag = session.get(queue, no_ack=False).delivery_tag
    session.channel.basic_ack(tag)
    return _answer(session, session.channel.basic_ack, tag)


@probe
def acknowledging_an_unknown_tag(session: Session) -> Any:
    session.queue()
    return _answer(session, session.channel.basic_ack, 99), _answer(
        session, session.channel.basic_ack, 99, multiple=True
    )


@probe
def rejecting_an_unknown_tag(session: Session) -> Any:
    session.queue()
    return _answer(session, session.channel.basic_reject, 99, requeue=True)


@probe
def rejecting_what_was_acknowledged(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a")
    tag = session.get(queue, no_ack=False).delivery_tag
    session.channel.basic_ack(tag)
    return _answer(session, session.channel.basic_reject, tag, requeue=True), session.depth(queue)


@probe
def channel_after_an_error(session: Session) -> Any:
    channel = session.channel
    session.attempt(channel.queue_purge, session.name("none"))
    return session.attempt(channel.queue_declare, queue=session.name("q"), durable=True)


@probe
def cancelled_consumer_gets_nothing_more(session: Session) -> Any:
    queue, found = session.queue(), []
    session.consume(queue, found.append)
    session.channel.basic_cancel(session.name("c"))
    session.fill(queue, "a")
    session.drain(lambda: found, seconds=0.1)
    return len(found), session.bodies(queue, 1)


@probe
def cancelled_consumer_may_acknowledge(session: Session) -> Any:
    queue, found = session.queue(), []
    session.fill(queue, "a")
    session.consume(queue, found.append)
    session.drain(lambda: found)
    session.channel.basic_cancel(session.name("c"))
    found[0].ack()
    session.close()
    return session.depth(queue, 0)


@probe
def two_consumers_of_a_queue_take_turns(session: Session) -> Any:
    queue, found = session.queue(), []
    for tag in "xy":
        channel = session.open_channel()
        channel.basic_qos(0, 1, False)
        session.consume(
            queue, lambda one, tag=tag: (found.append(tag), one.ack()), channel=channel, tag=session.name(tag)
        )
    session.fill(queue, *"abcdefgh")
    session.drain(lambda: len(found) == 8)
    return found.count("x") > 1, found.count("y") > 1


@probe
def consumer_of_two_queues_serves_both(session: Session) -> Any:
    first, second, found = session.queue("q1"), session.queue("q2"), []
    session.fill(first, *"abcdefgh")
    session.fill(second, "z")
    session.channel.basic_qos(0, 1, False)
    for queue in (first, second):
        session.consume(queue, lambda one: (found.append(text(one)), one.ack()), tag=queue)
    session.drain(lambda: len(found) == 9)
    return len(found), "z" in found[:-1]


@probe
def consumer_of_deleted_queue_is_cancelled(session: Session) -> Any:
    queue, cancelled = session.queue(), []
    channel = session.channel
    channel.basic_consume(queue=queue, callback=print, consumer_tag="t", on_cancel=cancelled.append)
    session.open_channel().queue_delete(queue=queue)
    return session.drain(lambda: cancelled), cancelled


@probe
def consumer_without_callback_of_deleted_queue_fails(session: Session) -> Any:
    queue = session.queue()
    session.consume(queue, print)
    other = session.open_channel()

    def delete() -> None:
        other.queue_delete(queue=queue)
        session.drain(lambda: False, seconds=5)

    return session.attempt(delete)


@probe
def redeclared_queue_is_not_consumed_by_the_old_consumer(session: Session) -> Any:
    queue, cancelled, found = session.queue(), [], []
    channel = session.channel
    channel.basic_consume(queue=queue, callback=found.append, consumer_tag="t", on_cancel=cancelled.append)
    session.open_channel().queue_delete(queue=queue)
    session.drain(lambda: cancelled)
    session.queue()
    session.fill(queue, "new")
    session.drain(lambda: found, seconds=0.1)
    return len(found), session.bodies(queue, 1)


@probe
def acknowledging_a_message_of_a_deleted_queue(session: Session) -> Any:
    queue = session.queue()
    session.fill(queue, "a")
    held = session.get(queue, no_ack=False)
    session.channel.queue_delete(queue=queue)
    answer = _answer(session, held.ack)
    return answer, session.attempt(session.channel.queue_declare, queue=queue, passive=True)


@probe
def consumer_gets_what_comes_later(session: Session) -> Any:
    queue, found = session.queue(), []
    session.consume(queue, found.append, no_ack=True)
    session.drain(lambda: False, seconds=0.05)
    started = time.monotonic()
    session.fill(queue, "a")
    return session.drain(lambda: found), time.monotonic() - started < 5


@probe
def same_consumer_tag_twice(session: Session) -> Any:
    connection = session.connection.clone()
    other = Session(connection, session.prefix)
    try:
        queue = other.queue()
        other.consume(queue, print, tag="t")
        return other.attempt(other.consume, queue, print, tag="t")
    finally:
        session.attempt(connection.release)
