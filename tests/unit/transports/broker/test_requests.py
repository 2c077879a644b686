"""How many requests a bucket gets for each message, poll and beat: they are what the bucket costs."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from ami.transports.objectstore.broker.transport import LONGEST_POLL_SECONDS, POLL_SECONDS
from ami.transports.objectstore.journal.objects import SEGMENT_BYTES
from ami.transports.objectstore.queue import shortener
from ami.transports.objectstore.queue.commands import Ack, Claim, Enqueue
from ami.transports.objectstore.queue.factory import open_store
from tests.support.soak import soak
from tests.support.transports.fake_bucket import (
    EVENTS,
    HEARTBEAT_SECONDS,
    LONG_SECONDS,
    Bucket,
    Clock,
    Process,
    Requests,
    clock,
    counted_processes,
    task_queue,
)

QUEUE = task_queue("tasks")
GET = Requests(get=1)

#: The journal is shortened once per snapshot: the smaller, the fewer messages have to go through.
SNAPSHOT_BYTES = soak(2 * 1024**2, shortener.SNAPSHOT_BYTES)


@contextmanager
def publisher_and_workers(
    workers: int = 1, queues: int = 1, prefetch: int = 1
) -> Iterator[tuple[Clock, Process, list[Process]]]:
    """A publisher and workers that have exchanged a message, after a quiet time."""
    names = [f"worker-{number}" for number in range(workers)]
    consumed = [QUEUE, *(task_queue(f"more-{number}") for number in range(1, queues))]
    with clock() as now, counted_processes(Bucket(), "publisher", *names) as [publisher, *started]:
        for worker in started:
            worker.consume(consumed, prefetch)
        EVENTS(publisher.connection.default_channel).declare()
        for queue in consumed:
            publisher.publish(queue)
        for worker in started:
            # The records of other workers are read, and the queues are known.
            for _ in consumed:
                worker.poll()
                worker.acknowledge_all()
            worker.poll()
            worker.beat()
        now.now += LONG_SECONDS
        yield now, publisher, started


def test_a_quiet_message_takes_five_reads_and_three_writes():
    with publisher_and_workers() as (now, publisher, [worker]):
        assert publisher.count(lambda: publisher.publish(QUEUE)) == Requests(get=2, put=1)
        # One read is of the worker's control queue.
        assert worker.count(worker.poll) == Requests(get=2, put=1)
        now.now += LONG_SECONDS
        assert worker.count(worker.acknowledge_all) == Requests(get=1, put=1)


def test_messages_that_come_together_share_requests():
    with publisher_and_workers(prefetch=8) as (now, publisher, [worker]):

        def publish() -> None:
            for _ in range(8):
                publisher.publish(QUEUE)

        # Each is stored alone, one write claims all, and each is acknowledged alone.
        assert publisher.count(publish) == Requests(get=2, put=8)
        assert worker.count(worker.poll) == Requests(get=2, put=1)
        assert len(worker.received) == 8
        now.now += LONG_SECONDS
        assert worker.count(worker.acknowledge_all) == Requests(get=1, put=8)


def test_a_poll_reads_each_queue_and_the_control_queue():
    for queues in (1, 3):
        with publisher_and_workers(queues=queues) as (_, _, [worker]):
            assert worker.count(worker.poll) == Requests(get=queues + 1)


def test_a_beat_reads_each_queue_and_the_record_of_each_other_worker():
    with publisher_and_workers() as (_, _, [worker]):
        alone = worker.count(worker.beat)
    assert alone == Requests(get=3, put=1, list=1)
    with publisher_and_workers(queues=3) as (_, _, [worker]):
        assert worker.count(worker.beat) == alone.plus(GET.times(2))
    with publisher_and_workers(workers=4) as (_, _, workers):
        assert workers[0].count(workers[0].beat) == alone.plus(GET.times(3))


def test_looking_for_delayed_messages_is_one_read():
    with publisher_and_workers() as (_, publisher, [worker]):
        worker.look_for_delayed()
        assert worker.count(worker.look_for_delayed) == GET
        headers = {"eta": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
        publisher.publish(QUEUE, headers=headers)
        # The slot and the object that announces it are read and written; later messages need the slot alone.
        worker.look_for_delayed()
        assert worker.count(worker.look_for_delayed) == GET
        assert publisher.count(lambda: publisher.publish(QUEUE, headers=headers)) == Requests(put=1)
        assert not worker.received


def test_a_held_message_adds_one_write_to_each_beat():
    with publisher_and_workers() as (now, publisher, [worker]):
        idle = worker.count(worker.beat)
        publisher.publish(QUEUE)
        worker.poll()
        assert worker.received
        now.now += LONG_SECONDS
        assert worker.count(worker.beat) == idle.plus(Requests(put=1))


def test_a_heartbeat_event_without_a_listener_reads_the_declarations():
    with publisher_and_workers() as (now, publisher, _):
        publisher.send_heartbeat()
        now.now += HEARTBEAT_SECONDS
        assert publisher.count(publisher.send_heartbeat) == GET


def test_an_idle_worker_polls_ever_more_rarely_up_to_the_longest_pause():
    with publisher_and_workers() as (now, _, [worker]):
        transport, pause = worker.connection.transport, POLL_SECONDS
        transport._poll_seconds, transport._poll_at = POLL_SECONDS, 0.0
        while pause < LONGEST_POLL_SECONDS:
            assert worker.count(worker.turn) == Requests(get=2)
            now.now += 0.99 * pause
            assert worker.count(worker.turn) == Requests()
            now.now += 0.011 * pause
            pause *= 1.5
        for _ in range(3):
            assert worker.count(worker.turn) == Requests(get=2)
            now.now += 0.99 * LONGEST_POLL_SECONDS
            assert worker.count(worker.turn) == Requests()
            now.now += 0.02 * LONGEST_POLL_SECONDS


class UpkeepBucket(Bucket):
    """A bucket that counts the requests for closed segments and snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.get = self.put = self.deleted = self.snapshots = 0

    def read(self, key):
        self.get += is_upkeep(key)
        return super().read(key)

    def create(self, key, content):
        # The replace of the head that names a snapshot is upkeep, too.
        self.put += is_upkeep(key) + ("snapshots/" in key)
        self.snapshots += "snapshots/" in key
        return super().create(key, content)

    def delete(self, key):
        self.deleted += is_upkeep(key)
        super().delete(key)


def is_upkeep(key: str) -> bool:
    return "segments/" in key or "snapshots/" in key


def upkeep(message_bytes: int, workers: int) -> Requests:
    """Return the requests per message for segments and snapshots, counted from the first snapshot to the second."""
    bucket, passed, marks = UpkeepBucket(), 0, []
    stores = [open_store(bucket) for _ in range(workers)]
    together = max(1, min(10, SEGMENT_BYTES // (8 * message_bytes)))
    for snapshots in (1, 2):
        while bucket.snapshots < snapshots:
            names = [f"{number:032x}" for number in range(passed, passed + together)]
            open_store(bucket).commit([Enqueue(name, bytes(message_bytes)) for name in names])
            passed += together
            for store in stores:
                store.look()
                [entries] = store.commit([Claim(-(-together // workers), "worker", 60.0)])
                if entries:
                    store.commit([Ack(entry.id) for entry in entries])
        marks.append((passed, Requests(bucket.get, bucket.put, 0, bucket.deleted)))
    (before, first), (after, second) = marks
    return second.plus(first.times(-1)).times(1 / (after - before))


def test_upkeep_grows_with_bytes_and_with_the_workers_that_read_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shortener, "SNAPSHOT_BYTES", SNAPSHOT_BYTES)
    small, large, two = upkeep(5_000, 1), upkeep(20_000, 1), upkeep(20_000, 2)
    assert small.put < large.put < 3 * 20_000 / SEGMENT_BYTES
    # A closed segment is deleted in the end, and each worker reads it once.
    assert large.delete == pytest.approx(large.put - 1 / (SNAPSHOT_BYTES / 20_000), rel=0.05)
    assert two.get == pytest.approx(2 * large.get, rel=0.05)
