"""A process that is killed while it declares or deletes a queue leaves one that can be declared and deleted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from amqp.exceptions import MessageNacked, NotFound
from kombu import Connection, Queue

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declaration_store import DeclarationStore
from ami.transports.objectstore.storage.errors import DamageError
from tests.support.place import until
from tests.support.transports.messages import LETTERS, QUEUE, declare, depth, dying, send

LIMITED = Queue("moths", QUEUE.exchange, routing_key="moths.#", durable=True, queue_arguments={
    "x-max-length": 1, "x-overflow": "reject-publish"})  # fmt: skip


@contextmanager
def killed_in(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, calls: int = 1) -> Iterator[None]:
    """End at a call as a killed process does: nothing after it is done."""
    work: Callable[..., Any] = getattr(kind, name)
    seen: list[int] = []

    def killed(*arguments: Any, **options: Any) -> Any:
        seen.append(1)
        if len(seen) == calls:
            raise KeyboardInterrupt
        return work(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, killed)
        try:
            yield
        except KeyboardInterrupt:
            return
    pytest.fail(f"{name} was not called")


def assert_limited(connection: Connection) -> None:
    send(connection, 1)
    with pytest.raises(MessageNacked):
        send(connection, 2)
    assert depth(connection, "moths") == 1


def test_a_queue_whose_limits_were_not_written_gets_them_when_declared_again(connect, monkeypatch):
    with killed_in(monkeypatch, BrokerStorage, "configure"):
        declare(connect(), LIMITED)
    other = connect()
    declare(other, LIMITED)
    assert_limited(other)


def test_a_queue_whose_dead_lettering_was_not_written_gets_it_when_declared_again(connect, monkeypatch):
    limited = dying(**{"x-delivery-limit": 0})
    with killed_in(monkeypatch, BrokerStorage, "configure"):
        declare(connect(), limited)
    connection = connect()
    channel = declare(connection, limited, LETTERS)
    send(connection, 1)
    channel.basic_reject(channel.basic_get("moths").delivery_tag, requeue=True)
    channel.flush()
    until(lambda: depth(connection, "moths.dlq") == 1, 20)


@pytest.mark.parametrize(("kind", "name", "calls"), [
    (DeclarationStore, "change", 1), (BrokerStorage, "destroy", 1),
], ids=["before", "after"])  # fmt: skip
def test_a_queue_that_was_half_deleted_is_empty_when_declared_again(connect, monkeypatch, kind, name, calls):
    connection, other = connect(), connect()
    channel = declare(connection, LIMITED)
    send(connection, "old")
    with killed_in(monkeypatch, kind, name, calls):
        channel.queue_delete("moths")
    declare(other, LIMITED)
    assert depth(other, "moths") == 0
    assert_limited(other)
    assert other.default_channel.queue_delete("moths") == 1
    with pytest.raises(NotFound):
        depth(other, "moths")


def test_a_queue_that_another_process_deleted_gets_its_limits_again(connect):
    connection = connect()
    declare(connection, LIMITED)
    broker = connection.transport.broker
    broker.declarations.change(lambda known: known.without_queue("moths"))
    broker.store("moths").destroy()
    declare(connection, LIMITED)
    assert_limited(connection)


def test_a_damaged_queue_can_be_declared_and_deleted(folder_url, tmp_path):
    with Connection(folder_url) as connection:
        declare(connection, dying(), LETTERS)
        send(connection, "lost")
    log = tmp_path / "broker" / "queues" / "moths" / "00000001.log"
    log.write_bytes(bytes(log.stat().st_size))
    with Connection(folder_url) as connection:
        channel = declare(connection, dying())
        with pytest.raises(DamageError):
            depth(connection, "moths")
        with pytest.raises(DamageError):
            channel.queue_delete("moths", if_empty=True)
        channel.queue_delete("moths")
        declare(connection, dying())
        send(connection, "new")
        assert depth(connection, "moths") == 1
