"""What a client of any AMQP broker may rely on, on every kind of storage: limits, acknowledgements, deleted queues."""

from pathlib import Path

import pytest
from amqp.exceptions import ConsumerCancelled, MessageNacked, PreconditionFailed, ResourceLocked
from kombu import Exchange, Queue

from ami.transports.objectstore.queue import store
from tests.support.place import until
from tests.support.transports.messages import depth

REJECTS = {"x-max-length": 2, "x-overflow": "reject-publish"}


def publish(channel, queue: str, *bodies: str) -> None:
    for body in bodies:
        channel.basic_publish(channel.prepare_message(body), exchange="", routing_key=queue)


def bodies(channel, queue: str) -> list[str]:
    found = []
    while (message := channel.basic_get(queue, no_ack=True)) is not None:
        found.append(bytes(message.body).decode())
    return found


def declare(connection, name: str = "q", **arguments):
    channel = connection.default_channel
    channel.queue_declare(queue=name, durable=True, arguments=arguments)
    return channel


def test_every_keyword_of_a_kombu_queue_reaches_the_broker(connect):
    connection = connect()
    given = {"message_ttl": 1.5, "max_length": 7, "max_priority": 3}
    Queue("q", Exchange(""), durable=True, **given)(connection.default_channel).declare()
    record = connection.transport.broker.declarations.current().queues["q"]
    assert record.arguments == {"x-message-ttl": 1500, "x-max-length": 7, "x-max-priority": 3}


def test_a_process_that_only_publishes_is_refused_by_a_full_queue(connect):
    publisher, other = connect(), connect()
    declare(other, **{"x-max-length": 2, "x-overflow": "reject-publish"})
    channel = publisher.default_channel
    publish(channel, "q", "a", "b")
    with pytest.raises(MessageNacked, match="is full"):
        publish(channel, "q", "c")
    assert other.default_channel.basic_get("q", no_ack=True)
    publish(channel, "q", "d")
    assert bodies(channel, "q") == ["b", "d"]


def test_a_full_queue_refuses_also_where_the_depth_was_read_long_ago(connect, monkeypatch):
    # As after a long wait for the lock: nothing that was read counts as new.
    monkeypatch.setattr(store, "FOLLOWING_SECONDS", -1.0)
    channel = declare(connect(), **REJECTS)
    publish(channel, "q", "a", "b")
    with pytest.raises(MessageNacked, match="is full"):
        publish(channel, "q", "c")
    assert bodies(channel, "q") == ["a", "b"]


def test_a_dead_letter_that_finds_its_queue_full_is_kept(connect):
    connection = connect()
    declare(connection, "dlq", **REJECTS)
    channel = declare(connection, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
    publish(channel, "q", "a", "b", "c")
    for _ in range(3):
        channel.basic_reject(channel.basic_get("q").delivery_tag)
    channel.flush()
    assert (depth(connection, "dlq"), depth(connection, "q")) == (2, 0)
    assert bodies(channel, "dlq") == ["a", "b"]
    # Counting a queue moves its dead letters.
    until(lambda: depth(connection, "q") == 0 and depth(connection, "dlq") == 1)
    assert bodies(channel, "dlq") == ["c"]


def test_a_limit_is_kept_by_who_opens_the_queue_later(folder_url, connect):
    first = connect()
    publish(declare(first, **{"x-max-length": 2}), "q", "a", "b")
    second = connect()
    publish(second.default_channel, "q", "c", "d")
    assert bodies(second.default_channel, "q") == ["c", "d"]


@pytest.mark.parametrize("name", ["x-max-length-bytes", "x-single-active-consumer", "x-expires"])
def test_an_argument_that_is_not_supported_is_refused_by_name(connect, name):
    connection = connect()
    with pytest.raises(PreconditionFailed, match=name):
        declare(connection, **{name: 1000})
    assert not connection.transport.broker.declarations.current().queues


def test_an_acknowledgement_after_the_redelivery_elsewhere_is_no_error(connect):
    worker, other = connect(visibility_timeout=0.05), connect()
    channel = declare(worker)
    publish(channel, "q", "a")
    held = channel.basic_get("q")
    # The lease is renewed while its connection lives; here it died.
    worker.transport._lease_renewer.stop()
    again = until(lambda: other.default_channel.basic_get("q"), what="a redelivery")
    channel.basic_ack(held.delivery_tag)
    other.default_channel.basic_reject(again.delivery_tag, requeue=True)


def test_an_acknowledgement_after_the_channel_closed_is_no_error(connect):
    connection = connect()
    declare(connection)
    with connection.channel() as channel:
        publish(channel, "q", "a")
        held = channel.basic_get("q")
    held.ack()
    assert depth(connection, "q") == 1


def test_a_consumer_whose_queue_another_process_deletes_ends(connect):
    worker, other = connect(), connect()
    channel, cancelled = declare(worker), []
    channel.basic_consume("q", callback=print, consumer_tag="told", on_cancel=cancelled.append)
    channel.basic_consume("q", callback=print, consumer_tag="untold")
    other.default_channel.queue_delete("q")
    with pytest.raises(ConsumerCancelled):
        until(lambda: _drained(worker))
    assert cancelled == ["told"]
    assert not list(channel.consumers)


def _drained(connection) -> None:
    # A remote storage's declarations are read again after a few seconds, or when a lease is renewed.
    connection.transport.broker.declarations.current(fresh=True)
    try:
        connection.drain_events(timeout=0.1)
    except TimeoutError:
        return


def test_settling_messages_of_a_deleted_queue_makes_no_queue(folder_url, connect, tmp_path):
    connection = connect()
    channel = declare(connection)
    publish(channel, "q", "a", "b")
    held = [channel.basic_get("q") for _ in range(2)]
    channel.queue_delete("q")
    held[0].ack()
    held[1].requeue()
    assert not list(Path(tmp_path).glob("broker/queues/q"))


def test_an_exclusive_queue_is_its_connections_alone(connect):
    owner, other = connect(), connect()
    owner.default_channel.queue_declare(queue="mine", exclusive=True)
    owner.default_channel.basic_consume("mine", callback=print)
    if owner.transport.broker.is_local:
        with pytest.raises(ResourceLocked, match="'mine' is exclusive"):
            other.default_channel.basic_consume("mine", callback=print)
    else:  # The other connection may be dead: a worker that was started again gets its queue.
        other.default_channel.queue_declare(queue="mine", exclusive=True)
    owner.release()
    assert "mine" not in other.transport.broker.declarations.current(fresh=True).queues


def test_a_temporary_queue_of_a_dead_connection_may_be_declared_otherwise(connect):
    old, new = connect(), connect()
    old.default_channel.queue_declare(queue="replies", auto_delete=True)
    new.default_channel.queue_declare(queue="replies", auto_delete=True, arguments={"x-expires": 10000})
    assert new.transport.broker.declarations.current().queues["replies"].owner == new.transport.owner
