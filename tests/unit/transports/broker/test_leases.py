"""A consumer's unacknowledged messages are requeued when it dies, and stay its own while it lives."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from amqp.exceptions import NotFound
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ami.transports import register
from ami.transports.objectstore.broker import consumer_registry, lease_renewer
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.place import ROOT, until
from tests.support.transports.messages import QUEUE, declare, depth, receive, send
from tests.support.transports.small_stores import Clock, clock

HOLD = """
import sys, time
from kombu import Connection, Consumer, Exchange, Queue
from ami.transports import register
from tests.support.transports.messages import QUEUE
register()
with Connection(sys.argv[1]) as connection:
    own = Queue("own-replies", Exchange("replies", type="direct"), routing_key="r", auto_delete=True)
    own(connection.default_channel).declare()
    with Consumer(connection.channel(), [QUEUE], callbacks=[lambda *_: print("held", flush=True)]):
        while True:
            connection.drain_events()
"""

#: Short, since a lease is renewed three times; real time does not matter to leases on a clock that stands.
LEASE_SECONDS = 0.3


@pytest.fixture
def standing() -> Iterator[Clock]:
    """A clock that only the test moves: a busy machine that delays the renewals ends no lease on it."""
    with clock(time.time()) as now, patch.object(consumer_registry, "time", now):
        yield now


def renewed(connection: Connection, until_moment: float) -> bool:
    """Whether the lease of the one message lasts until this moment at least."""
    store = connection.transport.broker.store("moths")
    with store.lock:
        [entry] = store.look().leased.values()
        return entry.until >= until_moment


@pytest.fixture
def holder(folder_url):
    """Another process that holds the one message of the queue."""
    with Connection(folder_url) as connection:
        declare(connection, QUEUE)
        send(connection, "precious")
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder_url], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.processes
def test_messages_of_a_killed_process_are_requeued_at_once(folder_url, holder, monkeypatch):
    monkeypatch.setattr(lease_renewer, "SEARCH_SECONDS", 0.1)
    with Connection(folder_url, transport_options={"visibility_timeout": 600}) as connection:
        declare(connection, QUEUE)
        holder.send_signal(signal.SIGKILL)
        [message] = receive(connection, QUEUE, 1, seconds=60)
        assert message.payload == "precious"
        assert message.delivery_info["redelivered"]
        assert message.headers["x-delivery-count"] == 1, "it may be why the process died"
        assert connection.default_channel.queue_declare("moths", passive=True).consumer_count == 0


@pytest.mark.processes
def test_the_reply_queue_of_a_killed_process_is_deleted(folder_url, holder, monkeypatch):
    monkeypatch.setattr(lease_renewer, "SEARCH_SECONDS", 0.1)
    monkeypatch.setattr(lease_renewer, "ORPHANED_QUEUE_SECONDS", 0.1)
    with Connection(folder_url) as connection:
        declare(connection, QUEUE)
        with Consumer(connection.channel(), [QUEUE], callbacks=[lambda *_: None]):
            assert depth(connection, "own-replies") == 0
            holder.kill()

            def is_deleted() -> bool:
                try:
                    return depth(connection, "own-replies") < 0
                except NotFound:
                    return True

            until(is_deleted, 60)


def test_a_living_consumer_keeps_its_messages(connect, standing):
    first, second = connect(visibility_timeout=LEASE_SECONDS), connect(visibility_timeout=LEASE_SECONDS)
    channel = declare(first, QUEUE)
    send(first, 1)
    message = channel.basic_get("moths")
    with Consumer(second.channel(), [QUEUE], callbacks=[lambda *_: pytest.fail("it was taken away")]):
        # Five times most of a lease: several leases in all.
        for _ in range(5):
            standing.now += 0.8 * LEASE_SECONDS
            until(lambda: renewed(first, standing.now + 0.99 * LEASE_SECONDS), 60)
            with pytest.raises(TimeoutError):
                second.drain_events(timeout=0.01)
            assert second.default_channel.basic_get("moths") is None
    message.ack()
    assert depth(first, "moths") == 0


def test_a_lease_that_is_not_renewed_ends(connect, monkeypatch):
    first, second = connect(visibility_timeout=0.3), connect(visibility_timeout=0.3)
    channel = declare(first, QUEUE)
    send(first, 1)
    channel.basic_get("moths")
    monkeypatch.setattr(lease_renewer.LeaseRenewer, "_renew", lambda _: None)
    [again] = receive(second, QUEUE, 1, seconds=60)
    assert again.delivery_info["redelivered"]


def test_a_late_acknowledgement_is_ignored(connect, monkeypatch):
    first, second = connect(visibility_timeout=0.2), connect()
    channel = declare(first, QUEUE)
    send(first, 1)
    late = channel.basic_get("moths")
    monkeypatch.setattr(lease_renewer.LeaseRenewer, "_renew", lambda _: None)
    receive(second, QUEUE, 1, seconds=60)
    late.ack()
    assert depth(first, "moths") == 0


def test_leases_of_a_frozen_consumer_are_returned_and_its_late_acknowledgement_is_ignored(connect):
    first, second = connect(), connect()
    channel = declare(first, QUEUE)
    send(first, 1)
    held = []
    with Consumer(channel, [QUEUE], callbacks=[lambda _, message: held.append(message)]):
        first.drain_events(timeout=60)
        assert second.transport.requeue_leases("another owner") == 0
        assert second.transport.requeue_leases(first.transport.owner) == 1
        [again] = receive(second, QUEUE, 1, seconds=60)
        assert again.delivery_info["redelivered"]
        held[0].ack()
    assert depth(second, "moths") == 0


def test_renewing_continues_after_the_storage_failed_once(connect, standing, monkeypatch, caplog):
    first, second = connect(visibility_timeout=LEASE_SECONDS), connect()
    channel = declare(first, QUEUE)
    send(first, 1)
    channel.basic_get("moths")
    failing, commit = threading.Event(), Store.commit

    def failing_once(self, commands, **options):
        if threading.current_thread().name == "objectstore-lease-renewer" and not failing.is_set():
            failing.set()
            raise StorageError("unreachable for a moment")
        return commit(self, commands, **options)

    monkeypatch.setattr(Store, "commit", failing_once)
    assert failing.wait(60)
    with Consumer(second.channel(), [QUEUE], callbacks=[lambda *_: pytest.fail("it was taken away")]):
        for _ in range(2):
            standing.now += 0.8 * LEASE_SECONDS
            until(lambda: renewed(first, standing.now + 0.99 * LEASE_SECONDS), 60)
            with pytest.raises(TimeoutError):
                second.drain_events(timeout=0.01)
            assert second.default_channel.basic_get("moths") is None
    assert "Renewing leases failed: unreachable for a moment" in caplog.text


@pytest.mark.parametrize("what", ["all", "announce"])
def test_renewing_continues_after_an_unexpected_error(connect, monkeypatch, caplog, what):
    connection = connect(visibility_timeout=LEASE_SECONDS)
    channel = declare(connection, QUEUE)
    renewer = connection.transport._get_lease_renewer()

    def failing(*_: object) -> None:
        raise TypeError("a strange record")

    monkeypatch.setattr(renewer._broker.consumers, what, failing)
    send(connection, 1)
    assert channel.basic_get("moths")
    turns = renewer.turns
    until(lambda: renewer.turns > turns + 3 or not renewer._thread.is_alive(), 60)
    assert "a strange record" in caplog.text
    held_until = time.time() + LEASE_SECONDS
    until(lambda: renewed(connection, held_until), 60)


def test_a_queue_whose_leases_cannot_be_renewed_does_not_end_those_of_others(connect, standing, monkeypatch):
    connection = connect(visibility_timeout=LEASE_SECONDS)
    # A set of names: one of these is before the other in any order.
    others = [Queue(f"other-{number}", durable=True) for number in range(8)]
    channel = declare(connection, QUEUE, *others)
    send(connection, 1)
    renewer, commit = connection.transport._get_lease_renewer(), Store.commit
    failing = [connection.transport.broker.store(other.name) for other in others]

    def failing_for_others(self, commands, **options):
        if threading.current_thread().name == "objectstore-lease-renewer" and self in failing:
            raise StorageError("damaged")
        return commit(self, commands, **options)

    monkeypatch.setattr(Store, "commit", failing_for_others)
    for other in others:
        Producer(connection).publish(1, routing_key=other.name)
        channel.basic_get(other.name)
    assert channel.basic_get("moths")
    turns, standing.now = renewer.turns, standing.now + 0.8 * LEASE_SECONDS
    until(lambda: renewed(connection, standing.now + 0.99 * LEASE_SECONDS), 60)
    assert renewer.turns >= turns


def test_renewing_makes_no_deleted_queue_again(folder_url, tmp_path):
    with Connection(folder_url, transport_options={"visibility_timeout": LEASE_SECONDS}) as connection:
        channel = declare(connection, QUEUE)
        send(connection, 1)
        assert channel.basic_get("moths")
        channel.queue_delete("moths")
        renewer = connection.transport._get_lease_renewer()
        turns = renewer.turns
        until(lambda: renewer.turns > turns + 3, 60)
        assert not (tmp_path / "broker" / "queues" / "moths").exists()


@pytest.mark.processes
def test_a_forked_child_publishes_and_keeps_off_its_parents_messages(folder_url):
    with Connection(folder_url) as connection:
        channel = declare(connection, QUEUE)
        send(connection, "the parent's")
        held = channel.basic_get("moths")
        child = os.fork()
        if not child:
            code = 1
            try:
                send(connection, "the child's")
                connection.release()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert channel.basic_get("moths").payload == "the child's"
        held.ack()
        assert depth(connection, "moths") == 0


def test_a_publish_that_kombu_repeats_is_stored_once(connect, monkeypatch):
    connection = connect()
    declare(connection, QUEUE)
    lost, commit = [], Store.commit

    def losing(self, commands, **options):
        answers = commit(self, commands, **options)
        if not lost:
            lost.append(1)
            raise StorageError("the answer was lost")
        return answers

    monkeypatch.setattr(Store, "commit", losing)
    send(connection, 1, retry=True, retry_policy={"max_retries": 2, "interval_start": 0}, correlation_id="x")
    assert lost
    assert depth(connection, "moths") == 1


def test_an_exclusive_queue_is_transient_and_has_an_owner(connect):
    connection = connect()
    declare(connection, Queue("mine", Exchange("replies", type="direct"), routing_key="r", exclusive=True))
    record = connection.transport.broker.declarations.current().queues["mine"]
    assert (record.is_transient, record.owner) == (True, connection.transport.owner)


def test_files_of_deleted_reply_queues_are_closed(folder_url, monkeypatch):
    """Each remote control command makes a queue for its replies, which the answering worker opens."""
    monkeypatch.setattr(lease_renewer, "SEARCH_SECONDS", 0.05)

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Connection(folder_url) as worker:
        declare(worker, QUEUE)
        with Consumer(worker.channel(), [QUEUE], callbacks=[lambda *_: None]):
            send(worker, "opens what stays open")
            before = None
            for number in range(6):
                replies = Queue(f"replies-{number}", Exchange("replies", type="direct"), routing_key=str(number))
                with Connection(folder_url) as asking:
                    declare(asking, replies)
                    Producer(worker).publish("pong", exchange="replies", routing_key=str(number), serializer="json")
                    assert receive(asking, replies, 1)[0].payload == "pong"
                    asking.default_channel.queue_delete(f"replies-{number}")
                if number == 0:
                    before = open_files()
            until(lambda: open_files() <= before, 60, "the files of deleted queues are closed")


def test_unused_brokers_are_closed(tmp_path):
    register()

    def use(number: int) -> int:
        with Connection(f"objectstore+file://{tmp_path / str(number)}") as connection:
            declare(connection, QUEUE)
            send(connection, 1)
            receive(connection, QUEUE, 1)
        del connection
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    # Earlier objects are not part of this test, and searching them takes most of the time.
    gc.collect()
    gc.freeze()
    try:
        counts = [use(number) for number in range(12)]
    finally:
        gc.unfreeze()
    # Of the four brokers that stay open, the first sweep may have closed the queue's three files or not.
    assert counts[-1] <= counts[5] + 4 * 3
