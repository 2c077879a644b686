"""New work wakes an idle consumer, from any thread and any process."""

import subprocess
import sys
import threading
import time

import pytest
from kombu import Connection, Consumer

from ami.transports.objectstore.broker import notify, transport
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.place import ROOT
from tests.support.transports.messages import QUEUE, declare, receive, send


@pytest.fixture
def without_polling(monkeypatch):
    monkeypatch.setattr(transport, "LEASE_CHECK_SECONDS", 1000.0)
    monkeypatch.setattr(notify, "POLL_SECONDS", 1000.0)


PUBLISH = """
import sys
from kombu import Connection
from ami.transports import register
from tests.support.transports.messages import send
register()
with Connection(sys.argv[1]) as connection:
    send(connection, "from afar")
"""


@pytest.mark.processes
@pytest.mark.usefixtures("without_polling")
def test_a_publish_of_another_process_wakes_an_idle_consumer(folder_url):
    with Connection(folder_url) as connection:
        declare(connection, QUEUE)
        got = []
        with Consumer(connection.channel(), [QUEUE], callbacks=[lambda body, _: got.append(body)]):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.1)
            publisher = subprocess.Popen([sys.executable, "-c", PUBLISH, folder_url], cwd=ROOT)
            connection.drain_events(timeout=60)
            assert publisher.wait(60) == 0
    assert got == ["from afar"]


@pytest.mark.usefixtures("without_polling")
def test_an_acknowledgement_of_another_thread_wakes_a_full_consumer(connect):
    connection = connect()
    declare(connection, QUEUE)
    for number in range(2):
        send(connection, number)
    got, timers = [], []

    def take(_, message):
        got.append(message)
        if len(got) == 1:
            timers.append(threading.Timer(0.1, message.ack))
            timers[0].start()

    with Consumer(connection.channel(), [QUEUE], callbacks=[take], prefetch_count=1):
        while len(got) < 2:
            connection.drain_events(timeout=60)
        # It still uses the connection, which ends with this test.
        timers[0].join()


@pytest.mark.usefixtures("without_polling")
def test_a_requeue_of_another_connection_wakes_an_idle_consumer(connect):
    first, second = connect(), connect()
    channel = declare(first, QUEUE)
    send(first, 1)
    message = channel.basic_get("moths")
    timer = threading.Timer(0.1, message.requeue)
    timer.start()
    [again] = receive(second, QUEUE, 1, seconds=60)
    timer.join()
    assert again.delivery_info["redelivered"]


def test_without_notifications_a_consumer_polls(folder_url, monkeypatch):
    monkeypatch.setattr(notify, "INotify", None)
    with Connection(folder_url) as connection, Connection(folder_url) as other:
        declare(connection, QUEUE)
        timer = threading.Timer(0.2, send, (other, "polled"))
        timer.start()
        assert receive(connection, QUEUE, 1, seconds=60)[0].payload == "polled"
        timer.join()


def test_a_notification_folder_of_another_user_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    with pytest.raises(StorageError, match="not this user's alone"):
        notify.make_private_folder(shared / "x")
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "own" / "link").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="not this user's alone"):
        notify.make_private_folder(tmp_path / "own" / "link")


def test_notifying_follows_no_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "notify").symlink_to(victim)
    notify.Notifier(tmp_path / "notify").notify()
    assert victim.read_text() == "kept"


def test_draining_an_empty_queue_ends_in_time(connect):
    connection = connect()
    declare(connection, QUEUE)
    began = time.monotonic()
    with Consumer(connection.channel(), [QUEUE], callbacks=[lambda *_: None]), pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.2)
    assert time.monotonic() - began >= 0.2
