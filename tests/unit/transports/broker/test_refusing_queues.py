"""A queue that refuses due messages or dead letters costs no message, repeats none, and keeps nobody busy."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Queue

from ami.transports.objectstore.broker import firing, open_slots, refused_letters
from ami.transports.objectstore.broker.declaration_store import DeclarationStore
from ami.transports.objectstore.broker.wheel import Delayed, slot_for
from ami.transports.objectstore.storage.errors import DamageError, StorageError
from tests.support.place import until
from tests.support.transports.messages import QUEUE, declare, depth, send

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}
FANOUT = Exchange("all", type="fanout", durable=True)
FREE = Queue("free", FANOUT, durable=True)
LIMITED = Queue("limited", FANOUT, durable=True, queue_arguments=FULL)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_slots, "FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(open_slots, "LONGEST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(refused_letters, "FIRST_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(refused_letters, "LONGEST_PAUSE_SECONDS", 0.4)


def soon() -> dict[str, str]:
    return {"eta": (datetime.now(UTC) + timedelta(seconds=0.1)).isoformat()}


def worked(connection: Connection) -> Callable[[], bool]:
    slots = open_slots.OpenSlots(connection.transport.broker)
    return lambda: slots.work(threading.Event()) is not None


def test_a_message_that_one_of_two_queues_refuses_is_not_repeated_in_the_other(connect, monkeypatch):
    connection = connect()
    channel = declare(connection, FREE, LIMITED)
    connection.Producer().publish("first", routing_key="limited")
    connection.Producer().publish("due", exchange="all", headers=soon())
    work = worked(connection)
    until(lambda: work() and depth(connection, "free") == 1, 20)
    taken = channel.basic_get("free", no_ack=True)
    # As two minutes later: its id is forgotten.
    store = connection.transport.broker.store("free")
    until(lambda: work() and depth(connection, "limited") == 1, 20)
    with store.lock:
        store.look().acknowledged.clear()
    stored: list[str] = []
    store_messages = firing.store_messages

    def storing(broker: Any, queue: str, *arguments: Any, **options: Any) -> Any:
        stored.append(queue)
        return store_messages(broker, queue, *arguments, **options)

    monkeypatch.setattr(firing, "store_messages", storing)
    until(lambda: work() and len(stored) > 2, 20)
    assert set(stored) == {"limited"}
    assert channel.basic_get("limited", no_ack=True).payload == "first"
    until(lambda: work() and depth(connection, "limited") == 1, 20)
    assert channel.basic_get("limited", no_ack=True).payload == taken.payload == "due"
    assert depth(connection, "free") == 0


def test_due_messages_are_kept_while_the_declarations_cannot_be_read(connect, monkeypatch):
    connection = connect()
    declare(connection, QUEUE)
    send(connection, "due", headers=soon())
    work = worked(connection)
    monkeypatch.setattr(open_slots, "DAMAGED_SLOT_SECONDS", 0.05)
    with monkeypatch.context() as patch:
        failed: list[int] = []

        def failing(*_: object, **__: object) -> None:
            failed.append(1)
            raise StorageError("it is torn")

        patch.setattr(DeclarationStore, "current", failing)
        until(lambda: work() and failed, 20)
    until(lambda: work() and depth(connection, "moths") == 1, 20)


@pytest.mark.parametrize("seconds", [0.2, 5, 100, 100_000])
def test_a_damaged_slot_does_not_keep_delayed_messages_from_being_stored(folder_url, seconds):
    with Connection(folder_url) as connection:
        wheel, due = connection.transport.broker.wheel, time.time() + seconds
        slot = slot_for(due, time.time())
        wheel.put([Delayed("lost", due, b"")])
        store = wheel.store(slot)
        store.close()
        log = connection.transport._address.folder / "delayed" / slot.name / "00000001.log"
        log.write_bytes(bytes(log.stat().st_size))
        with pytest.raises(DamageError):
            store.look()
        wheel.put([Delayed("kept", due, b"")])
        others = [wheel.store(other).look().entries for other in wheel.slots() if other != slot]
        assert [[entry.id for entry in entries.values()] for entries in others] == [[":kept"]]


def test_refused_dead_letters_are_not_written_again_at_each_acknowledgement(folder_url, tmp_path):
    with Connection(folder_url) as connection:
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "limited"}
        channel = declare(connection, LIMITED, Queue("dying", durable=True, queue_arguments=arguments))
        for number in range(30):
            connection.Producer().publish(number, routing_key="dying")
        for _ in range(10):
            channel.basic_reject(channel.basic_get("dying").delivery_tag)
        channel.flush()
        log = tmp_path / "broker" / "queues" / "limited" / "00000001.log"
        before = log.stat().st_size
        for _ in range(20):
            channel.basic_ack(channel.basic_get("dying").delivery_tag)
        channel.flush()
        assert log.stat().st_size - before < 2 * (before / 10)
        # They come as soon as there is room.
        for number in range(10):
            letter = until(lambda: depth(connection, "dying") == 0 and channel.basic_get("limited", no_ack=True), 30)
            assert letter.payload == number


def test_refused_dead_letters_of_a_queue_without_consumers_move_when_there_is_room(folder_url):
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "limited", "x-message-ttl": 50}
    with Connection(folder_url) as connection, Connection(folder_url) as consumer:
        channel = declare(connection, QUEUE, LIMITED, Queue("dying", durable=True, queue_arguments=arguments))
        for number in range(3):
            connection.Producer().publish(number, routing_key="dying")
        with Consumer(consumer.channel(), [QUEUE], on_message=lambda _: None):
            got = [until(lambda: channel.basic_get("limited", no_ack=True), 30).payload for _ in range(3)]
        assert got == [0, 1, 2]
