"""Dead letters: messages that were rejected, returned too often, expired or damaged."""

import pytest

from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.place import until
from tests.support.transports.messages import (
    LETTERS,
    QUEUE,
    declare,
    depth,
    dying,
    receive,
    receive_nothing,
    send,
)


def test_rejected_messages_are_dead_letters_with_x_death(connect):
    connection = connect()
    declare(connection, dying(), LETTERS)
    send(connection, {"n": 1}, headers={"task": "x"})
    receive(connection, dying(), 1, lambda message: message.reject())
    until(lambda: depth(connection, "moths.dlq") == 1)
    letter = connection.default_channel.basic_get("moths.dlq")
    [death] = letter.headers["x-death"]
    assert (death["reason"], death["queue"], death["exchange"]) == ("rejected", "moths", "site")
    assert death["routing-keys"] == ["moths.new"]
    assert (letter.payload, letter.headers["task"]) == ({"n": 1}, "x")


def test_rejected_messages_of_a_queue_without_dead_letters_are_removed(connect):
    connection = connect()
    declare(connection, QUEUE)
    send(connection, 1)
    receive(connection, QUEUE, 1, lambda message: message.reject())
    assert depth(connection, "moths") == 0
    assert connection.default_channel.basic_get("moths") is None


def test_a_message_that_is_returned_too_often_is_buried(connect):
    connection = connect()
    declare(connection, dying(**{"x-delivery-limit": 2}), LETTERS)
    send(connection, 1)
    counts = []

    def settle(message):
        counts.append(message.headers.get("x-delivery-count", 0))
        message.requeue()

    receive(connection, dying(**{"x-delivery-limit": 2}), 3, settle)
    until(lambda: depth(connection, "moths.dlq") == 1)
    assert counts == [0, 1, 2]
    assert connection.default_channel.basic_get("moths.dlq").headers["x-death"][0]["reason"] == "delivery_limit"


@pytest.mark.parametrize("own", [True, False])
def test_an_expired_message_is_buried(connect, own):
    connection = connect()
    arguments = {} if own else {"x-message-ttl": 50}
    declare(connection, dying(**arguments), LETTERS)
    send(connection, 1, **({"expiration": 0.05} if own else {}))
    until(lambda: depth(connection, "moths") == 0, 60)
    until(lambda: receive_nothing(connection, dying(**arguments)) and depth(connection, "moths.dlq") == 1, 60)
    assert connection.default_channel.basic_get("moths.dlq").headers["x-death"][0]["reason"] == "expired"


def test_a_replayed_dead_letter_is_stored_though_its_id_is_known(connect):
    connection = connect()
    channel = declare(connection, dying(), LETTERS)
    send(connection, 1, message_id="same")
    receive(connection, dying(), 1, lambda message: message.reject())
    until(lambda: depth(connection, "moths.dlq") == 1)
    letter = channel.basic_get("moths.dlq")
    send(connection, letter.payload, message_id=letter.properties["message_id"])
    channel.basic_ack(letter.delivery_tag)
    assert (depth(connection, "moths"), depth(connection, "moths.dlq")) == (1, 0)


def test_a_replayed_letter_that_dies_again_is_dead_lettered_again(connect):
    connection = connect()
    channel = declare(connection, dying(), LETTERS)
    send(connection, 1, message_id="same")
    for _ in range(3):
        receive(connection, dying(), 1, lambda message: message.reject())
        until(lambda: depth(connection, "moths.dlq") == 1)
        letter = channel.basic_get("moths.dlq")
        send(connection, letter.payload, message_id=letter.properties["message_id"])
        channel.basic_ack(letter.delivery_tag)


def test_a_damaged_message_is_buried_and_the_next_ones_run(connect, monkeypatch, caplog):
    connection = connect()
    declare(connection, dying(), LETTERS)
    for number in range(3):
        send(connection, number)
    store = connection.transport.broker.store("moths")
    bad = list(store.look().entries)[1]
    payload = Store.payload

    def damaged(self, entry):
        if entry.id == bad:
            raise StorageError("its bytes are damaged")
        return payload(self, entry)

    monkeypatch.setattr(Store, "payload", damaged)
    assert [message.payload for message in receive(connection, dying(), 2)] == [0, 2]
    assert f"Message {bad} of moths is damaged; burying it" in caplog.text
    assert (depth(connection, "moths"), depth(connection, "moths.dlq")) == (0, 0)
    assert store.look().buried[bad].buried == "damaged"
