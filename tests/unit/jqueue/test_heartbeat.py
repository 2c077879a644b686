"""Signs of life, and what becomes of a job that gives none."""

import asyncio
import logging
import time
from datetime import datetime, timedelta

import pytest

from ami.jqueue import BrokerQueue, DirectQueue, HeartbeatManager, JQueueError, StorageError
from ami.jqueue.core import whole_state
from tests.support.transports.blob_storages import until
from tests.support.transports.small_stores import clock

OFTEN = timedelta(milliseconds=5)


class Beats:
    """Counts the beats it takes, and fails from one on."""

    def __init__(self, fails_at=None, error=None):
        self.count = 0
        self.fails_at = fails_at
        self.error = error

    async def heartbeat(self, job_id):
        self.count += 1
        if self.count == self.fails_at:
            raise self.error

    async def reached(self, count):
        async def holds():
            return self.count >= count

        await until(holds)


def test_it_beats_until_the_block_ends():
    async def main():
        beats = Beats()
        async with HeartbeatManager(beats, "1", interval=OFTEN):
            await beats.reached(3)
        count = beats.count
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert (count >= 3, others) == (True, set())

    asyncio.run(main())


@pytest.mark.parametrize("error", [JQueueError("removed"), StorageError("unreachable", OSError())])
def test_it_stops_silently_when_the_queue_says_no(error, caplog):
    async def main():
        beats = Beats(2, error)
        async with HeartbeatManager(beats, "1", interval=OFTEN):
            await beats.reached(2)

            async def ended():
                return len(asyncio.all_tasks()) == 1

            await until(ended)
        assert beats.count == 2

    asyncio.run(main())
    assert caplog.records == []


def test_foreign_error_of_a_heartbeat_is_raised_when_the_block_ends():
    async def main():
        beats = Beats(1, ZeroDivisionError("foreign"))
        finished = []

        async def work():
            async with HeartbeatManager(beats, "job-7", interval=OFTEN):
                await beats.reached(1)
                finished.append("work")

        with pytest.raises(ZeroDivisionError, match="foreign"):
            await work()
        assert (finished, beats.count) == (["work"], 1)

    asyncio.run(main())


def test_error_of_the_block_hides_no_other_and_is_kept(caplog):
    async def main():
        beats = Beats(1, ZeroDivisionError("foreign"))
        async with HeartbeatManager(beats, "job-7", interval=OFTEN):
            await beats.reached(1)
            await asyncio.sleep(0)
            raise KeyError("of the block")

    with caplog.at_level(logging.WARNING), pytest.raises(KeyError, match="of the block"):
        asyncio.run(main())
    assert "Heartbeat ended early for job job-7" in caplog.text
    assert "foreign" in caplog.text


def test_an_error_of_the_block_comes_through():
    async def main():
        with pytest.raises(KeyError):
            async with HeartbeatManager(Beats(), "1", interval=OFTEN):
                raise KeyError

    asyncio.run(main())


def test_a_stale_job_is_delivered_again(storage):
    async def main():
        async with BrokerQueue(storage, stale_timeout=timedelta(milliseconds=50)) as q:
            await q.enqueue("t", b"x")
            [claimed] = await q.dequeue("t")
            again = []

            async def redelivered():
                again.extend(await q.dequeue("t"))
                return again

            await until(redelivered)
            assert [job.id for job in again] == [claimed.id]
            assert again[0].heartbeat_at - claimed.heartbeat_at >= timedelta(milliseconds=50)

    asyncio.run(main())


def test_a_job_with_a_heartbeat_is_not(storage, monkeypatch):
    stale_timeout = timedelta(minutes=5)
    age = timedelta()

    async def main(standing):
        async with BrokerQueue(storage, stale_timeout=stale_timeout) as q:
            await q.enqueue("t", b"x")
            [claimed] = await q.dequeue("t")

            async def has_beaten():
                nonlocal age
                age = (await q.read_state()).find(claimed.id).heartbeat_at - claimed.heartbeat_at
                return age > expected - timedelta(seconds=1)

            async with HeartbeatManager(q, claimed.id, interval=OFTEN):
                # Only the test moves the clock: a beat that is late on a busy machine is not late there.
                for steps in range(1, 5):
                    standing.now += 0.6 * stale_timeout.total_seconds()
                    expected = steps * 0.6 * stale_timeout
                    await until(has_beaten)
                    assert await q.dequeue("t") == []
            await q.ack(claimed.id)

    with clock(time.time()) as standing:

        class Standing(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.fromtimestamp(standing.now, tz)

        monkeypatch.setattr(whole_state, "datetime", Standing)
        asyncio.run(main(standing))
    assert age > 1.5 * stale_timeout


def test_a_heartbeat_of_any_queue_will_do(storage):
    async def main():
        q = DirectQueue(storage)
        await q.enqueue("t", b"")
        [claimed] = await q.dequeue()

        async def moved():
            return (await q.read_state()).find(claimed.id).heartbeat_at > claimed.heartbeat_at

        async with HeartbeatManager(q, claimed.id, interval=OFTEN):
            await until(moved)

    asyncio.run(main())


def test_leaving_does_not_wait_for_a_beat_under_way():
    class Slow:
        def __init__(self):
            self.began = asyncio.Event()

        async def heartbeat(self, job_id):
            self.began.set()
            await asyncio.Event().wait()

    async def main():
        slow = Slow()
        async with HeartbeatManager(slow, "1", interval=OFTEN):
            await slow.began.wait()

    asyncio.run(asyncio.wait_for(main(), 20))
