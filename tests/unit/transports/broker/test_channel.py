"""Publishing, consuming and settling as on any AMQP broker."""

from datetime import UTC, datetime, timedelta

import pytest
from amqp.exceptions import ChannelError, NotFound, PreconditionFailed
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ami.transports.objectstore.queue.commands import Ack
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.transports.messages import (
    DEAD,
    EXCHANGE,
    LETTERS,
    QUEUE,
    declare,
    depth,
    dying,
    receive,
    receive_nothing,
    send,
)


def test_messages_are_delivered_in_order_and_removed_when_acknowledged(connect):
    connection = connect()
    declare(connection, QUEUE)
    for number in range(10):
        send(connection, {"n": number})
    got = receive(connect(), QUEUE, 10)
    assert [message.payload["n"] for message in got] == list(range(10))
    assert not any(message.delivery_info["redelivered"] for message in got)
    assert depth(connection, "moths") == 0


def test_higher_priority_goes_first(connect):
    connection = connect()
    declare(connection, QUEUE)
    for priority in (0, 9, 5, 9):
        send(connection, priority, priority=priority)
    assert [message.payload for message in receive(connection, QUEUE, 4)] == [9, 9, 5, 0]


def test_prefetch_bounds_what_a_consumer_holds(connect):
    connection = connect()
    declare(connection, QUEUE)
    for number in range(5):
        send(connection, number)
    held = []
    with Consumer(connection.channel(), [QUEUE], callbacks=[lambda _, message: held.append(message)], prefetch_count=2):
        while len(held) < 2:
            connection.drain_events(timeout=60)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.2)
        assert (len(held), depth(connection, "moths")) == (2, 3)
        held[0].ack()
        connection.drain_events(timeout=60)
        assert [message.payload for message in held] == [0, 1, 2]


def test_requeued_messages_are_delivered_first_and_flagged(connect):
    connection = connect()
    declare(connection, QUEUE)
    for number in range(3):
        send(connection, number)
    seen = []

    def settle(message):
        seen.append((message.payload, message.delivery_info["redelivered"]))
        message.requeue() if len(seen) == 1 else message.ack()

    receive(connection, QUEUE, 4, settle, prefetch_count=1)
    assert seen == [(0, False), (0, True), (1, False), (2, False)]


def take_and_close(connection) -> None:
    """Consume the one message of the queue and close the channel without settling it."""
    held: list = []
    channel = connection.channel()
    with Consumer(channel, [QUEUE], callbacks=[lambda _, message: held.append(message)], auto_declare=False):
        while not held:
            connection.drain_events(timeout=60)
        channel.close()


def test_closing_requeues_and_counts_deliveries_as_rabbitmq_does(connect):
    first, second = connect(), connect()
    declare(first, dying(**{"x-delivery-limit": 2}), LETTERS)
    send(first, "ends its worker")
    take_and_close(second)
    take_and_close(second)
    assert (depth(first, "moths"), depth(first, "moths.dlq")) == (1, 0)
    take_and_close(second)
    assert (depth(first, "moths"), depth(first, "moths.dlq")) == (0, 1)
    letter = first.default_channel.basic_get("moths.dlq")
    assert letter.headers["x-death"][0]["reason"] == "delivery_limit"


def test_closing_does_not_count_messages_held_until_their_eta(connect):
    first, second = connect(), connect()
    declare(first, dying(**{"x-delivery-limit": 1}), LETTERS)
    send(first, "later", headers={"eta": (datetime.now(UTC) + timedelta(hours=1)).replace(tzinfo=None).isoformat()})
    for _ in range(4):
        take_and_close(second)
    assert (depth(first, "moths"), depth(first, "moths.dlq")) == (1, 0)
    message = first.default_channel.basic_get("moths")
    assert message.delivery_info["redelivered"]


def test_mandatory_message_that_no_queue_takes_is_refused(connect):
    connection = connect()
    declare(connection, QUEUE)
    send(connection, "unrouted", key="no.such.key")
    with pytest.raises(ChannelError, match="NO_ROUTE"):
        send(connection, "lost", key="no.such.key", mandatory=True)


@pytest.mark.parametrize("headers", [["x"], "x", 5])
def test_headers_that_are_not_a_table_are_delivered_as_one_header(connect, headers):
    connection = connect()
    channel = declare(connection, QUEUE)
    message = channel.prepare_message(b"1", content_type="application/json", headers=headers)
    channel.basic_publish(message, exchange="site", routing_key="moths.new")
    [received] = receive(connection, QUEUE, 1)
    assert received.headers == {"antenna_headers": headers}


def test_a_header_like_a_serializer_type_is_delivered(connect):
    connection = connect()
    declare(connection, QUEUE)
    header = {"__type__": "uuid", "__value__": {}}
    send(connection, 1, headers={"unknown": header})
    [received] = receive(connection, QUEUE, 1)
    assert received.headers == {"unknown": header}


def test_acknowledgements_survive_a_storage_that_fails_once(connect, monkeypatch):
    connection = connect()
    declare(connection, QUEUE)
    for number in range(3):
        send(connection, number)
    failed, commit = [], Store.commit

    def failing(self, commands, **options):
        if not failed and any(isinstance(command, Ack) for command in commands):
            failed.append(1)
            raise StorageError("unreachable for a moment")
        return commit(self, commands, **options)

    monkeypatch.setattr(Store, "commit", failing)
    got = []

    def take(_, message):
        got.append(message.payload)
        message.ack()

    with Consumer(connection.channel(), [QUEUE], callbacks=[take], prefetch_count=1):
        while len(got) < 3:
            try:
                connection.drain_events(timeout=60)
            except StorageError:
                assert failed
    assert got == [0, 1, 2]
    assert not connection.transport.broker.store("moths").look().entries


def test_fanout_reaches_every_queue_that_is_bound_by_any_connection(connect):
    first, second = connect(), connect()
    news = Exchange("news", type="fanout", durable=False)
    queues = [Queue(name, news, auto_delete=True) for name in ("one", "two")]
    declare(first, queues[0])
    declare(second, queues[1])
    Producer(first).publish("hello", exchange=news, serializer="json", declare=[news])
    assert [receive(first, queue, 1, no_ack=True, settle=lambda _: None)[0].payload for queue in queues] == [
        "hello"
    ] * 2


def test_the_alternate_exchange_keeps_what_no_binding_matches(connect):
    connection = connect()
    lost = Queue("lost", Exchange("lost", type="fanout"), durable=True)
    main = Queue(
        "moths", Exchange("site", type="topic", arguments={"alternate-exchange": "lost"}), routing_key="moths.#"
    )
    declare(connection, main, lost)
    send(connection, 1, key="beetles.new")
    assert (depth(connection, "moths"), depth(connection, "lost")) == (0, 1)


def test_publishing_to_an_exchange_that_does_not_exist_is_refused(connect):
    with pytest.raises(NotFound, match="no exchange 'site'"):
        send(connect(), 1, retry=False)


def test_a_passive_declare_counts_messages_and_consumers(connect):
    first, second = connect(), connect()
    channel = declare(first, QUEUE)
    send(first, 1)
    with Consumer(second.channel(), [QUEUE], callbacks=[lambda *_: None]):
        assert channel.queue_declare("moths", passive=True) == ("moths", 1, 1)
    assert channel.queue_declare("moths", passive=True).consumer_count == 0
    with pytest.raises(NotFound, match="no queue 'nope'"):
        channel.queue_declare("nope", passive=True)


def test_declaring_otherwise_is_refused(connect):
    connection = connect()
    channel = declare(connection, QUEUE)
    with pytest.raises(PreconditionFailed, match="queue 'moths' exists with arguments"):
        channel.queue_declare("moths", durable=True, arguments={"x-delivery-limit": 3})
    with pytest.raises(PreconditionFailed, match="exchange 'site' exists with type"):
        channel.exchange_declare("site", "fanout", durable=True)
    with pytest.raises(PreconditionFailed, match="no type 'headers'"):
        channel.exchange_declare("other", "headers")


def test_unbinding_purging_and_deleting(connect):
    connection = connect()
    channel = declare(connection, QUEUE)
    send(connection, 1)
    send(connection, 2)
    assert channel.queue_purge("moths") == 2
    channel.queue_unbind("moths", "site", "moths.#")
    send(connection, 3)
    assert depth(connection, "moths") == 0
    assert channel.queue_delete("moths") == 0
    with pytest.raises(NotFound):
        channel.queue_purge("moths")
    declare(connection, QUEUE)
    send(connection, 4)
    assert [message.payload for message in receive(connection, QUEUE, 1)] == [4]


def test_an_auto_delete_queue_is_deleted_with_its_last_consumer(connect):
    first, second = connect(), connect()
    replies = Queue("replies", Exchange("replies", type="direct"), routing_key="r", auto_delete=True)
    declare(first, replies)
    receive_nothing(first, replies)
    with pytest.raises(NotFound):
        second.default_channel.queue_declare("replies", passive=True)


def test_basic_get_takes_one_and_acknowledging_frees_nothing_else(connect):
    connection = connect()
    channel = declare(connection, QUEUE)
    for number in range(2):
        send(connection, number)
    message = channel.basic_get("moths")
    assert (message.payload, depth(connection, "moths")) == (0, 1)
    message.ack()
    assert channel.basic_get("moths", no_ack=True).payload == 1
    assert channel.basic_get("moths") is None


def test_bodies_of_bytes_and_text_come_back_as_they_were(connect):
    connection = connect()
    declare(connection, QUEUE)
    producer = Producer(connection)
    for body, kind in ((b"\x00\xff\n{", "application/data"), ("Käfer\n", "text/plain")):
        producer.publish(
            body,
            exchange="site",
            routing_key="moths.x",
            content_type=kind,
            content_encoding="binary" if kind == "application/data" else "utf-8",
        )
    got = receive(connection, QUEUE, 2, accept=["application/data", "text/plain"])
    assert [message.body for message in got][0] == b"\x00\xff\n{"
    assert got[1].payload == "Käfer\n"


def test_a_url_that_names_no_storage_is_refused_with_what_to_write():
    for url, match in (
        ("objectstore+ftp://x/y", "is not an object storage"),
        ("objectstore+file://", "absolute path"),
        ("objectstore+s3://", "names no bucket"),
        ("objectstore+s3://key:secret@bucket/x", "credentials belong into the environment"),
    ):
        with pytest.raises(ValueError, match=match) as refused:
            Connection(url).connect()
        assert "secret" not in str(refused.value)


def test_exchanges_can_be_deleted(connect):
    connection = connect()
    channel = declare(connection, QUEUE, LETTERS)
    assert {queue for queue, _, _ in channel.list_bindings()} == {"moths", "moths.dlq"}
    DEAD(channel).delete()
    assert {exchange for _, exchange, _ in channel.list_bindings()} == {EXCHANGE.name}
