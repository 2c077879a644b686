"""What is refused at the edge, before it can spoil a batch."""

import asyncio
from datetime import timedelta

import pytest

from ami.jqueue import (
    BrokerQueue,
    DirectQueue,
    HeartbeatManager,
    InMemoryStorage,
    JQueueError,
)

BAD_CALLS = [
    (lambda q: q.enqueue("", b""), ValueError, "entrypoint must not be empty"),
    (lambda q: q.enqueue(None, b""), TypeError, "entrypoint must be a string, not NoneType"),
    (lambda q: q.enqueue("\ud800", b""), ValueError, "entrypoint holds half a character"),
    (lambda q: q.enqueue("t", "text"), TypeError, "payload must be bytes, not str"),
    (lambda q: q.enqueue("t", b"", priority="1"), TypeError, "priority must be an integer, not str"),
    (lambda q: q.enqueue("t", b"", priority=True), TypeError, "priority must be an integer, not bool"),
    (lambda q: q.enqueue("t", b"", priority=10**5000), ValueError, "priority must be "),
    (lambda q: q.dequeue("t", batch_size=0), ValueError, "batch_size must be 1 to "),
    (lambda q: q.dequeue("t", batch_size=1.0), TypeError, "batch_size must be an integer, not float"),
    (lambda q: q.dequeue(""), ValueError, "entrypoint must not be empty"),
    (lambda q: q.dequeue(7), TypeError, "entrypoint must be a string, not int"),
    (lambda q: q.ack(None), TypeError, "job_id must be a string, not NoneType"),
    (lambda q: q.nack(""), ValueError, "job_id must not be empty"),
    (lambda q: q.heartbeat("\udfff"), ValueError, "job_id holds half a character"),
]


def test_bad_arguments_are_refused_by_name(queue):
    async def main():
        async with queue as q:
            for call, error, message in BAD_CALLS:
                with pytest.raises(error, match=message):
                    await call(q)
                assert (await q.read_state()).version == 0, message

    asyncio.run(main())


@pytest.mark.parametrize("payload", [bytearray(b"xy"), memoryview(b"xy")])
def test_payloads_like_bytes_are_taken(queue, payload):
    async def main():
        async with queue as q:
            assert (await q.enqueue("t", payload)).payload == b"xy"
            assert (await q.dequeue())[0].payload == b"xy"

    asyncio.run(main())


def test_times_are_timedeltas():
    async def main():
        with pytest.raises(TypeError, match="timeout must be a timedelta, not int"):
            await DirectQueue(InMemoryStorage()).requeue_stale(300)

    asyncio.run(main())
    with pytest.raises(TypeError, match="stale_timeout must be a timedelta, not int"):
        BrokerQueue(InMemoryStorage(), stale_timeout=300)
    with pytest.raises(ValueError, match="interval must not be negative"):
        HeartbeatManager(DirectQueue(InMemoryStorage()), "1", interval=timedelta(seconds=-1))
    with pytest.raises(TypeError, match="max_retries must be an integer, not str"):
        DirectQueue(InMemoryStorage(), max_retries="3")
    with pytest.raises(ValueError, match="max_retries must be 0 to "):
        DirectQueue(InMemoryStorage(), max_retries=-1)
    with pytest.raises(TypeError, match="interval must be a timedelta, not int"):
        HeartbeatManager(DirectQueue(InMemoryStorage()), "1", interval=30)


def test_a_broker_queue_wants_its_context(storage):
    async def main():
        q = BrokerQueue(storage)
        with pytest.raises(JQueueError, match="this BrokerQueue is not running: use it inside 'async with'"):
            await q.enqueue("t", b"")
        async with q:
            await q.enqueue("t", b"")
            with pytest.raises(RuntimeError, match="this BrokerQueue runs already"):
                await q.__aenter__()
        with pytest.raises(JQueueError, match="is not running"):
            await q.dequeue()
        assert len((await q.read_state()).jobs) == 1
        async with q:
            assert len(await q.dequeue()) == 1

    asyncio.run(main())
