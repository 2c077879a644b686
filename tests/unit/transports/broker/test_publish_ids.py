"""Each publish is a message of its own: only the retries of one publish are stored once."""

import errno
import math
import os
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.contrib.migrate import move
from kombu import Connection, Producer, Queue

from ami.celery.bulk_publisher import publish_many
from ami.transports.objectstore.broker.open_slots import OpenSlots
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.place import until
from tests.support.transports.messages import QUEUE, declare, depth, receive, send


def test_publishes_of_one_message_id_are_each_stored(connect):
    connection = connect()
    declare(connection, QUEUE)
    for _ in range(3):
        send(connection, 1, message_id="same", publish_id="same")
    assert [message.properties["message_id"] for message in receive(connection, QUEUE, 3)] == ["same"] * 3


def test_a_delivered_message_has_the_properties_it_was_sent_with(connect):
    connection = connect()
    channel = declare(connection, QUEUE)
    send(connection, 1, message_id="own", publish_id="own")
    message = channel.basic_get("moths")
    assert set(message.properties) == {
        *("message_id", "publish_id", "delivery_mode", "priority"),
        *("delivery_info", "delivery_tag"),  # kombu's, in every virtual transport
    }


def test_a_republished_message_is_a_new_one(connect):
    connection = connect()
    channel = declare(connection, QUEUE)
    send(connection, 1)
    first = channel.basic_get("moths")
    Producer(connection).publish(first.body, exchange="site", routing_key="moths.new", **first.properties)
    first.ack()
    second = channel.basic_get("moths")
    assert second is not None
    assert not second.delivery_info["redelivered"]


def test_one_prepared_message_published_twice_is_two_messages(connect):
    connection = connect()
    channel = declare(connection, QUEUE)
    message = channel.prepare_message("x", properties={"delivery_mode": 2})
    for _ in range(2):
        channel.basic_publish(message, exchange="site", routing_key="moths.new")
    assert depth(connection, "moths") == 2


def _fail_after(monkeypatch: pytest.MonkeyPatch, commits: int) -> list[str]:
    """Let the first ``commits`` of an enqueue be stored and then fail; return the ids that were sent."""
    commit, ids = Store.commit, []

    def failing(self: Store, commands: Any, **options: Any) -> Any:
        answer = commit(self, commands, **options)
        sent = [command.id for command in commands if isinstance(command, Enqueue)]
        ids.extend(sent)
        if sent and len(ids) <= commits:
            raise StorageError("it did not answer")
        return answer

    monkeypatch.setattr(Store, "commit", failing)
    return ids


def test_retries_of_one_publish_are_stored_once(connect, monkeypatch):
    connection = connect()
    declare(connection, QUEUE)
    ids = _fail_after(monkeypatch, 2)
    policy = {"max_retries": 5, "interval_start": 0, "interval_step": 0, "interval_max": 0}
    for _ in range(2):
        send(connection, 1, message_id="same", retry=True, retry_policy=policy)
    assert (len(ids), len(set(ids))) == (4, 2)
    assert depth(connection, "moths") == 2


def test_another_message_after_a_failed_publish_is_stored(connect, monkeypatch):
    connection = connect()
    channel = declare(connection, QUEUE)
    _fail_after(monkeypatch, 1)
    properties = {"delivery_mode": 2}
    with pytest.raises(StorageError):
        channel.basic_publish(channel.prepare_message("a", properties=properties), "site", "moths.new")
    channel.basic_publish(channel.prepare_message("b", properties=properties), "site", "moths.new")
    assert depth(connection, "moths") == 2


def test_ten_tasks_are_moved_there_and_back_by_celery(url):
    app: Any = Celery("mover", broker=url, set_as_current=False)
    app.conf.task_ignore_result = True

    @app.task(name="task", shared=False)
    def task(number: int) -> None: ...

    with app.connection_for_write() as connection:
        sent = sorted(task.apply_async((number,), connection=connection).id for number in range(10))
        for source, target in (("celery", "other"), ("other", "celery")):
            app.amqp.queues.add(target)

            def to_target(body, message, target=target):
                return app.amqp.queues[target]

            move(to_target, app=app, connection=connection, source=[source], limit=10, timeout=30)
            assert (depth(connection, source), depth(connection, target)) == (0, 10)
        channel = connection.default_channel
        assert sorted(channel.basic_get("celery").headers["id"] for _ in range(10)) == sent
    app.close()


def _refuse_syncs(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Let the disk refuse the first ``number`` of syncs: what they were for is in the journal."""
    sync, refused = os.fdatasync, []

    def refusing(fd: int) -> None:
        if len(refused) < number:
            refused.append(fd)
            raise OSError(errno.EIO, "the disk failed")
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", refusing)
    return refused


RETRY = {"retry": True, "retry_policy": {"max_retries": 5, "interval_start": 0, "interval_step": 0, "interval_max": 0}}


@pytest.mark.parametrize("is_consumed", [False, True])
def test_a_publish_whose_sync_failed_is_stored_once(folder_url, monkeypatch, is_consumed):
    with Connection(folder_url) as connection:
        channel = declare(connection, QUEUE)
        if is_consumed:
            assert channel.basic_get("moths") is None
        refused = _refuse_syncs(monkeypatch, 2)
        send(connection, 1, **RETRY)
        assert len(refused) == 2
        assert depth(connection, "moths") == 1


def test_a_publish_whose_first_try_was_consumed_already_is_stored_once(folder_url, monkeypatch):
    with Connection(folder_url) as connection:
        channel = declare(connection, QUEUE)
        properties = {"delivery_mode": 2}
        _refuse_syncs(monkeypatch, 1)
        with pytest.raises(StorageError):
            channel.basic_publish(channel.prepare_message("a", properties=properties), "site", "moths.new")
        channel.basic_ack(channel.basic_get("moths").delivery_tag)
        channel.basic_publish(channel.prepare_message("a", properties=properties), "site", "moths.new")
        assert depth(connection, "moths") == 0


def test_a_delayed_publish_whose_sync_failed_is_fired_once(folder_url, monkeypatch):
    with Connection(folder_url) as connection:
        declare(connection, QUEUE)
        refused = _refuse_syncs(monkeypatch, 2)
        send(connection, 1, headers={"eta": (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()}, **RETRY)
        assert len(refused) == 2
        slots = OpenSlots(connection.transport.broker)
        until(lambda: slots.work(threading.Event()) and depth(connection, "moths"), 20)
        until(lambda: slots.work(threading.Event()) == math.inf, 20)
        assert depth(connection, "moths") == 1


def test_a_batch_whose_sync_failed_is_stored_once(folder_url, monkeypatch):
    app: Any = Celery("publisher", broker=folder_url, set_as_current=False)
    app.conf.task_publish_retry_policy = RETRY["retry_policy"]

    @app.task(name="task", shared=False)
    def task(number: int) -> None: ...

    with Connection(folder_url) as connection:
        declare(connection, Queue("celery", durable=True))
        refused = _refuse_syncs(monkeypatch, 2)
        publish_many(app, [task.s(number) for number in range(20)])
        assert len(refused) == 2
        assert depth(connection, "celery") == 20
    app.close()
