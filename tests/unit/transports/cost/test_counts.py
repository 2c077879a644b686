"""What the calculator counts is what the transport asks for, counted here in another way."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from kombu import Connection, Consumer, Producer, Queue

from ami.transports.objectstore.__main__ import main
from ami.transports.objectstore.broker.transport import LONGEST_POLL_SECONDS
from ami.transports.objectstore.cost import command, sample
from ami.transports.objectstore.cost.ledger import PRESENCE, part_of
from ami.transports.objectstore.cost.month import ONE_GET, _pauses
from ami.transports.objectstore.cost.processes import Worker, bells, task_queue
from ami.transports.objectstore.cost.requests import Requests
from ami.transports.objectstore.cost.upkeep import upkeep
from ami.transports.objectstore.journal.objects import SEGMENT_BYTES
from ami.transports.objectstore.queue import store as store_module
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak
from tests.support.transports.fake_bucket import Bucket, clock, counted_processes

LONG_SECONDS = 60.0

#: Upkeep is counted from one snapshot to the next: the smaller that way is, the fewer messages have to go through.
SNAPSHOT_BYTES = soak(2 * 1024**2, store_module.SNAPSHOT_BYTES)


@pytest.fixture(scope="module")
def samples() -> list[sample.Sample]:
    """Messages that come alone, and eight together: each count waits for ten seconds, both at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(sample.take, (700, 700), (1, 8)))


@pytest.fixture
def counted(samples: list[sample.Sample]) -> sample.Sample:
    return samples[0]


@pytest.fixture
def together(samples: list[sample.Sample]) -> sample.Sample:
    return samples[1]


def published(connection: Connection, queue: Queue) -> None:
    Producer(connection.default_channel).publish("x" * 700, exchange=queue.exchange, routing_key=queue.routing_key)


def polled(connection: Connection) -> None:
    connection.transport._poll_at = 0.0
    with suppress(TimeoutError):
        connection.drain_events(timeout=0)


def test_a_quiet_message_costs_what_its_requests_are(counted: sample.Sample):
    queue, messages = task_queue("tasks"), []
    with clock() as now, counted_processes(Bucket(), "publisher", "worker") as processes:
        [(publisher, sent), (worker, received)] = processes
        Consumer(worker.default_channel, [queue], on_message=messages.append).consume()
        published(publisher, queue)
        polled(worker)
        messages.pop().ack()
        polled(worker)
        now.now += LONG_SECONDS

        before = sent.traffic
        published(publisher, queue)
        assert Requests.of(sent.traffic.since(before)) == counted.published == Requests(get=2, put=1)

        before = received.traffic
        polled(worker)
        claimed = Requests.of(received.traffic.since(before))
        # The poll that finds a message looks into the worker's control queue as well.
        assert claimed.plus(ONE_GET) == counted.claimed == Requests(get=2, put=1)

        now.now += LONG_SECONDS
        before = received.traffic
        messages.pop().ack()
        worker.default_channel.flush()
        assert Requests.of(received.traffic.since(before)) == counted.acknowledged == Requests(get=1, put=1)


def test_a_worker_of_one_queue_polls_that_and_its_control_queue(counted: sample.Sample):
    assert counted.poll == Requests(get=2)


def test_a_heartbeat_that_nobody_listens_to_reads_the_layout(counted: sample.Sample):
    assert counted.heartbeat == ONE_GET


def test_a_held_message_costs_one_write_more_at_each_beat(counted: sample.Sample):
    assert counted.renewal == Requests(put=1)


def test_a_stored_message_is_larger_than_its_body(counted: sample.Sample):
    assert 700 < counted.stored_bytes < 1500


def asked_by_polls_and_beats(workers: int, queues: int) -> tuple[Requests, Requests]:
    """Count a poll and a beat of one of so many workers, each of so many queues, with everything it knows old."""
    with bells() as folder, clock() as now:
        storage = MemoryObjects()
        consumed = [task_queue(f"tasks-{number}") for number in range(queues)]
        started = [Worker(storage, folder(), 3600.0, consumed, 1) for _ in range(workers)]
        worker = started[0]
        transport = worker.connection.transport
        for queue in consumed:
            worker.publish(queue, b"1")
        worker.receive(1, LONGEST_POLL_SECONDS)
        while worker.received:
            worker.acknowledge_all()
            worker.turn()
        now.now += LONG_SECONDS
        transport._poll_at, before = 0.0, worker.ledger.requests()
        worker.turn()
        poll = worker.ledger.requests().minus(before)
        now.now += LONG_SECONDS
        before = worker.ledger.requests()
        keeper = transport._keeping()
        keeper._renew()
        keeper._clear_up()
        beat = worker.ledger.requests().minus(before)
        for each in started:
            each.connection.release()
    return poll, beat


def test_further_queues_and_workers_cost_one_read_each(counted: sample.Sample):
    alone_poll, alone_beat = asked_by_polls_and_beats(1, 1)
    assert (alone_poll, alone_beat) == (counted.poll, counted.beat)
    poll, beat = asked_by_polls_and_beats(1, 3)
    assert (poll, beat) == (alone_poll.plus(Requests(get=2)), alone_beat.plus(Requests(get=2)))
    poll, beat = asked_by_polls_and_beats(4, 1)
    assert (poll, beat) == (alone_poll, alone_beat.plus(Requests(get=3)))


def test_messages_that_come_together_share_requests(counted: sample.Sample, together: sample.Sample):
    for name in ("published", "claimed", "acknowledged"):
        assert sum(getattr(together, name)) < sum(getattr(counted, name))
    # Each is stored by itself, one write claims all, and each task ends by itself.
    assert (together.published.put, together.claimed.put, together.acknowledged.put) == (1, pytest.approx(1 / 8), 1)


def test_upkeep_grows_with_bytes_and_with_those_who_read_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "SNAPSHOT_BYTES", SNAPSHOT_BYTES)
    small, large, two = upkeep(5_000, 1), upkeep(20_000, 1), upkeep(20_000, 2)
    assert small.put < large.put < 3 * 20_000 / SEGMENT_BYTES
    # What is closed is deleted in the end, and each worker reads it once.
    assert large.delete == pytest.approx(large.put - 1 / (SNAPSHOT_BYTES / 20_000), rel=0.05)
    assert two.get == pytest.approx(2 * large.get, rel=0.05)


def test_the_command_tells_what_was_counted(
    counted: sample.Sample, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(store_module, "SNAPSHOT_BYTES", SNAPSHOT_BYTES)
    monkeypatch.setattr(command.sample, "take", lambda message_bytes, batch: counted)
    assert main(["cost", "--json", "--ops", "1000", "--workers", "2", "--idle-hours", "0"]) == 0
    rows = {row["name"]: row["month"] for row in json.loads(capsys.readouterr().out)["rows"]}
    for name, each in (
        ("publish", counted.published),
        ("claim", counted.claimed),
        ("acknowledge", counted.acknowledged),
    ):
        assert rows[name] == pytest.approx(each.times(1000)._asdict())


def test_pauses_between_polls_are_those_of_the_transport():
    with bells() as folder:
        worker = Worker(MemoryObjects(), folder(), 3600.0, [task_queue("tasks")], 1)
        transport = worker.connection.transport
        for pause in _pauses():
            assert transport._poll_seconds == pytest.approx(min(pause, LONGEST_POLL_SECONDS))
            if pause > LONGEST_POLL_SECONDS:
                break
            transport._poll_at = 0.0
            transport._look()
        worker.connection.release()


def test_every_key_of_a_broker_is_counted_as_a_part():
    keys = {"queues/a/head": "head", "queues/a/segments/1": "segment", "queues/a/snapshots/1": "snapshot"}
    for key, part in {**keys, "layout": "layout", f"{PRESENCE}/me": PRESENCE}.items():
        assert part_of(key) == part
