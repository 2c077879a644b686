"""What a storage that refuses or loses writes does to the queue in one blob: nothing is lost, nothing is doubled."""

import asyncio
from datetime import timedelta

import pytest

from ami.jqueue import (
    BrokerQueue,
    CASConflictError,
    DirectQueue,
    JobNotFoundError,
    StorageError,
)
from ami.jqueue.core.codec import decode
from tests.support.transports.blob_storages import FaultyBlob, OneBlob


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between tries, in seconds; none of them is waited for."""
    seen = []
    real = asyncio.sleep

    async def sleep(seconds, result=None):
        if seconds:
            seen.append(seconds)
        await real(0)
        return result

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return seen


def test_a_direct_queue_backs_off_linearly(pauses):
    async def main():
        blob = FaultyBlob(["conflict"] * 10)
        await DirectQueue(blob).enqueue("t", b"")
        assert blob.tries == 11

    asyncio.run(main())
    assert pauses == pytest.approx([0.01 * (attempt + 1) for attempt in range(10)])


def test_a_direct_queue_gives_up_after_ten_retries():
    async def main():
        blob = FaultyBlob(["conflict"] * 11)
        with pytest.raises(CASConflictError):
            await DirectQueue(blob).enqueue("t", b"")
        assert (blob.tries, blob.content) == (11, b"")

    asyncio.run(main())


def test_a_broker_queue_backs_off_exponentially_with_jitter(pauses):
    async def main():
        async with BrokerQueue(FaultyBlob(["conflict"] * 20)) as q:
            await q.enqueue("t", b"")

    asyncio.run(main())
    full = [0.005 * 2 ** min(attempt, 6) for attempt in range(20)]
    assert all(longest / 2 <= pause <= longest for pause, longest in zip(pauses, full, strict=True))
    assert len({round(pause, 9) for pause in pauses[7:]}) > 1
    assert max(pauses) <= 0.32


def test_a_broker_queue_gives_up_for_the_whole_batch_and_goes_on():
    async def main():
        async with BrokerQueue(FaultyBlob(["conflict"] * 21)) as q:
            batch = (q.enqueue("t", b"1"), q.enqueue("t", b"2"))
            outcomes = await asyncio.gather(*batch, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [CASConflictError] * 2
            await q.enqueue("t", b"3")
            assert [job.payload for job in (await q.read_state()).jobs] == [b"3"]

    asyncio.run(main())


@pytest.mark.parametrize("queue", [BrokerQueue, DirectQueue])
@pytest.mark.parametrize("fault", ["conflict", "echo"])
def test_an_enqueue_tried_again_is_one_job(queue, fault):
    async def main():
        blob = FaultyBlob([fault])
        q = queue(blob)
        if isinstance(q, BrokerQueue):
            await q.start()
            job = await q.enqueue("t", b"x")
            await q.stop()
        else:
            job = await q.enqueue("t", b"x")
        assert decode(blob.content).jobs == (job,)

    asyncio.run(main())


def test_a_lost_answer_is_found_out():
    async def main():
        blob = FaultyBlob(["lost answer"] * 4)
        q = DirectQueue(blob)
        job = await q.enqueue("t", b"x")
        [claimed] = await q.dequeue()
        await q.heartbeat(job.id)
        await q.ack(claimed.id)
        assert (blob.tries, decode(blob.content).jobs) == (4, ())

    asyncio.run(main())


def test_a_lost_request_is_reported():
    async def main():
        blob = FaultyBlob(["lost request"])
        async with BrokerQueue(blob) as q:
            with pytest.raises(StorageError) as caught:
                await q.enqueue("t", b"x")
            assert isinstance(caught.value.cause, OSError)
            assert blob.content == b""
            await q.enqueue("t", b"y")
            assert [job.payload for job in await q.dequeue()] == [b"y"]

    asyncio.run(main())


def test_an_acknowledgement_whose_echo_conflicts_finds_nothing():
    async def main():
        blob = FaultyBlob(["", "", "echo"])
        q = DirectQueue(blob)
        job = await q.enqueue("t", b"x")
        await q.dequeue()
        with pytest.raises(JobNotFoundError):
            await q.ack(job.id)
        assert decode(blob.content).jobs == ()

    asyncio.run(main())


def test_errors_of_a_users_storage_come_through_unchanged():
    class Broken(OneBlob):
        async def read(self):
            raise PermissionError("no")

    async def main():
        with pytest.raises(PermissionError):
            await DirectQueue(Broken()).enqueue("t", b"")
        async with BrokerQueue(Broken()) as q:
            for _ in range(2):
                with pytest.raises(PermissionError):
                    await q.enqueue("t", b"")

    asyncio.run(main())


def test_a_blob_that_is_no_queue_is_left_alone():
    async def main():
        blob = OneBlob(b"holiday photographs")
        with pytest.raises(StorageError, match="this is not a queue in JSON"):
            await DirectQueue(blob).enqueue("t", b"")
        assert blob.content == b"holiday photographs"

    asyncio.run(main())


def test_nothing_is_written_when_nothing_changes():
    async def main():
        blob = FaultyBlob()
        q = DirectQueue(blob)
        assert await q.dequeue() == []
        assert await q.requeue_stale(timedelta(0)) == 0
        with pytest.raises(JobNotFoundError):
            await q.ack("1")
        assert blob.tries == 0

    asyncio.run(main())


def test_a_batch_is_one_write_and_one_version():
    async def main():
        blob = FaultyBlob()
        async with BrokerQueue(blob) as q:
            await asyncio.gather(*(q.enqueue("t", b"") for _ in range(10)))
            assert (blob.tries, (await q.read_state()).version) == (1, 1)

    asyncio.run(main())


def test_queues_that_race_over_one_blob_lose_and_double_nothing():
    async def work(q, done):
        for number in range(10):
            await q.enqueue("t", str(number).encode())
            for job in await q.dequeue("t", batch_size=3):
                done.append(job.id)
                await q.ack(job.id)

    async def main():
        blob, done = OneBlob(), []
        queues = [BrokerQueue(blob) for _ in range(3)]
        for q in queues:
            await q.start()
        await asyncio.gather(*(work(q, done) for q in queues for _ in range(3)))
        for q in queues:
            await q.stop()
        left = decode(blob.content).queued_jobs()
        assert len(done) == len(set(done))
        assert len(done) + len(left) == 90

    asyncio.run(main())


def test_two_first_writers_keep_both_jobs():
    async def main():
        blob = OneBlob()
        await asyncio.gather(DirectQueue(blob).enqueue("t", b"1"), DirectQueue(blob).enqueue("t", b"2"))
        assert {job.payload for job in decode(blob.content).jobs} == {b"1", b"2"}

    asyncio.run(main())
