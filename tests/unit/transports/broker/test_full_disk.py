"""A full disk: queues are drained all the same, publishers get an error, and it recovers by itself."""

import json
import os
import time
from pathlib import Path

import pytest
from kombu import Connection, Consumer

from ami.transports.objectstore.broker.failure_backoff import FailureBackoff
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage import reserve as reserve_module
from ami.transports.objectstore.storage.errors import StorageError, StorageFullError
from ami.transports.objectstore.storage.reserve import Reserve
from tests.support.transports.full_disk import run_in_namespace
from tests.support.transports.messages import QUEUE, declare

#: Publishes until the disk is full, lets three processes drain the queue, then frees the disk.
DRAIN = """
import json, multiprocessing, os, time
from pathlib import Path
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import OperationalError
from ami.transports import register
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.transports.full_disk import fill

register()
folder = Path(sys.argv[1])
url = f"objectstore+{(folder / 'broker').as_uri()}"
letters = Exchange("letters")
arguments = {"x-dead-letter-exchange": "letters"}
queue = Queue("tasks", Exchange("tasks"), "tasks", queue_arguments=arguments)
dead = Queue("dead", letters, "tasks")


def open_all():
    connection = Connection(url)
    for each in (queue, dead):
        each(connection.default_channel).declare()
    return connection


def work(done):
    # Every seventh message is rejected, the others are acknowledged.
    def handle(body, message):
        message.reject() if body["number"] % 7 == 0 else message.ack()
        done.put(body["number"])

    with open_all() as connection, Consumer(connection.channel(), [queue], callbacks=[handle], prefetch_count=2):
        while True:
            connection.drain_events(timeout=60)


answer = {"accepted": 0}
with open_all() as connection:
    producer = Producer(connection)

    def publish(number, **options):
        producer.publish({"number": number, "load": "x" * 60000}, exchange="tasks", routing_key="tasks", **options)

    for number in range(40):
        publish(number)
    answer["reserve"] = (folder / "broker" / "reserve").stat().st_blocks * 512
    filler = fill(folder)
    began = time.monotonic()
    try:
        publish(999, retry=True, retry_policy={"max_retries": 2, "interval_start": 0, "interval_step": 0.1})
    except OperationalError as error:
        answer["error"] = str(error)
    answer["error after"] = time.monotonic() - began
    context = multiprocessing.get_context("fork")
    done = context.Queue()
    workers = [context.Process(target=work, args=(done,), daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    numbers = [done.get(timeout=60) for _ in range(40)]
    answer["handled"] = sorted(numbers)

    def depth(each):
        return each(connection.default_channel).queue_declare(passive=True).message_count

    deadline = time.monotonic() + 60
    while depth(queue) and time.monotonic() < deadline:
        time.sleep(0.05)
    answer["left"] = depth(queue)
    answer["given up"] = not (folder / "broker" / "reserve").exists()
    filler.unlink()
    while time.monotonic() < deadline:
        try:
            publish(7, retry=False)
            break
        except StorageError:
            time.sleep(0.1)
    while depth(dead) < 7 and time.monotonic() < deadline:
        time.sleep(0.05)
    answer["dead"] = depth(dead)
    answer["back"] = (folder / "broker" / "reserve").exists()
    for worker in workers:
        worker.kill()
print(json.dumps(answer))
"""


@pytest.mark.processes
def test_a_full_disk_is_drained_and_accepts_messages_again():
    answer = json.loads(run_in_namespace(DRAIN).splitlines()[-1])
    assert answer["reserve"] > 500_000
    assert set(answer["handled"]) == set(range(40))
    assert answer["left"] == 0
    assert answer["given up"]
    assert "No space left on device" in answer["error"] or "is full" in answer["error"]
    assert "\n" not in answer["error"]
    assert answer["error after"] < 10
    # Six of the forty were rejected, and one afterwards: they were buried, and moved when there was room.
    assert answer["dead"] == 7
    assert answer["back"]


#: Fills a queue, then the disk; acknowledges all, and waits for the disk to have room again.
SHORTEN = """
import json, time
from pathlib import Path
from ami.transports.objectstore.queue.commands import Ack, Claim, Enqueue
from ami.transports.objectstore.queue.factory import open_folder
from ami.transports.objectstore.storage.errors import StorageFullError
from ami.transports.objectstore.storage.reserve import Reserve
from tests.support.transports.full_disk import fill

folder = Path(sys.argv[1])
reserve = Reserve(folder)
assert reserve.restore()
publisher, worker = (open_folder(folder / "queue", reserve=reserve) for _ in range(2))
for number in range(100):
    publisher.commit([Enqueue(str(number), bytes(90_000))])
fill(folder)
for _ in range(50):
    [entries] = worker.commit([Claim(2, "worker", 60.0)])
    worker.commit([Ack(entry.id) for entry in entries])
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    worker.shorten()
    try:
        publisher.commit([Enqueue("after", bytes(90_000))])
        break
    except StorageFullError:
        time.sleep(0.1)
print(json.dumps([worker.look().depth(), sum(path.stat().st_size for path in (folder / "queue").iterdir())]))
"""


@pytest.mark.processes
def test_a_drained_queue_frees_the_disk_that_it_filled():
    depth, size = json.loads(run_in_namespace(SHORTEN, size="24m"))
    assert depth == 1
    assert size < 1_000_000


POLLS = """
import logging
from pathlib import Path
from kombu import Connection, Consumer
from ami.transports import register
from tests.support.transports.messages import QUEUE, declare, send

register()
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
with Connection(f"objectstore+{Path(sys.argv[1]).as_uri()}/broker") as connection:
    declare(connection, QUEUE)
    for number in range(2):
        got = []
        with Connection(connection.as_uri()) as other:
            callbacks = [lambda body, message: (got.append(body), message.ack())]
            with Consumer(other.channel(), [QUEUE], callbacks=callbacks):
                try:
                    other.drain_events(timeout=0.3)
                except TimeoutError:
                    pass
                send(connection, number)
                other.drain_events(timeout=60)
        print("got", got)
"""


@pytest.mark.processes
@pytest.mark.parametrize("limit", ["instances", "watches"])
def test_a_consumer_polls_with_one_warning_where_inotify_is_used_up(limit: str):
    found = run_in_namespace(POLLS, before=f"echo 0 > /proc/sys/user/max_inotify_{limit}").splitlines()
    assert [line for line in found if line.startswith("got")] == ["got [0]", "got [1]"]
    assert [line for line in found if "poll every" in line] == found[:1]


# The reserve by itself.


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is free, in bytes, as the reserve sees it."""
    free = [10**9]
    monkeypatch.setattr(Reserve, "_free", lambda self: free[0])
    return free


def test_the_reserve_is_made_once_and_grows_with_the_queues(tmp_path: Path, room: list[int]):
    reserve = Reserve(tmp_path)
    assert reserve.refusal() is None
    assert reserve.path.stat().st_size == reserve_module.FIRST_BYTES
    reserve.grow()
    assert reserve.path.stat().st_size == reserve_module.FULL_BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["reserve"]


def test_the_reserve_comes_back_when_there_is_room_and_tries_seldom(
    tmp_path: Path, room: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    now = [1000.0]
    monkeypatch.setattr(reserve_module.time, "monotonic", lambda: now[0])
    reserve, tries = Reserve(tmp_path), []
    assert reserve.restore()
    room[0] = 0
    assert reserve.give_up()
    assert not reserve.give_up()
    monkeypatch.setattr(Reserve, "_free", lambda self: tries.append(now[0]) or room[0])
    for _ in range(600):
        now[0] += 0.1
        assert isinstance(reserve.refusal(), StorageFullError)
    assert 8 <= len(tries) <= 16
    room[0] = 10**9
    now[0] += reserve_module.LONGEST_PAUSE_SECONDS
    assert reserve.refusal() is None
    assert reserve.path.exists()
    assert caplog.text.count("gave up the reserve") == 1


def test_connections_after_repeated_failures_are_refused_for_a_while(monkeypatch: pytest.MonkeyPatch):
    backoff, attempts, sentences = FailureBackoff(), 0, set()
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(600):
        now[0] += 0.1
        try:
            backoff.check()
        except StorageError as error:
            sentences.add(str(error))
            continue
        attempts += 1
        with pytest.raises(StorageError), backoff.watched():
            raise StorageError("the disk is full")
    # Without pauses it would be 600 in a minute.
    assert 8 <= attempts <= 14
    assert sentences == {"the disk is full"}
    now[0] += 1000
    backoff.check()


def test_a_failed_connection_leaves_no_open_file(folder_url: str, monkeypatch: pytest.MonkeyPatch):
    """A worker that connects and fails many times must not run out of files."""
    with Connection(folder_url) as connection:
        declare(connection, QUEUE)
    open_files = []
    for _ in range(6):
        connection = Connection(folder_url)
        channel = connection.channel()
        consumer = Consumer(channel, [QUEUE])
        consumer.consume()
        with monkeypatch.context() as patching:
            patching.setattr(Store, "commit", _refuse)
            connection.collect()
        consumer.cancel()
        open_files.append(len(os.listdir("/proc/self/fd")))
    assert open_files[-1] == open_files[0]


def _refuse(*_: object, **__: object) -> None:
    raise StorageError("no room")
