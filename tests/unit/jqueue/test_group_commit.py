"""What batches promise their callers, on every storage."""

import asyncio
import contextlib
import threading
from datetime import timedelta

import pytest

from ami.jqueue import (
    BrokerQueue,
    DirectQueue,
    GroupCommitLoop,
    InMemoryStorage,
    JobNotFoundError,
    JobStatus,
    JQueueError,
    LocalFileSystemStorage,
    StorageError,
)
from ami.jqueue.core.keyed import KeyedQueue
from ami.jqueue.core.writers import BATCH_BYTES, BATCH_COMMANDS
from tests.support.transports.blob_storages import OneBlob, until


class Gate(OneBlob):
    """A blob whose writes wait until they are let through."""

    def __init__(self):
        super().__init__()
        self.opened = asyncio.Event()
        self.waiting = 0

    async def write(self, content, if_match=None):
        self.waiting += 1
        await self.opened.wait()
        return await super().write(content, if_match)


class JournalGate:
    """Holds commits to journals while it is closed."""

    def __init__(self, commit):
        self._commit = commit
        self.opened = threading.Event()
        self.opened.set()
        self.reached = threading.Event()

    def close(self):
        self.reached.clear()
        self.opened.clear()

    def commit(self, queue, commands):
        self.reached.set()
        assert self.opened.wait(20)
        return self._commit(queue, commands)


@pytest.fixture
def journal_gate(monkeypatch):
    gate = JournalGate(KeyedQueue.commit)
    monkeypatch.setattr(KeyedQueue, "commit", lambda queue, commands: gate.commit(queue, commands))
    return gate


def test_one_bad_call_fails_alone(storage):
    async def main():
        async with BrokerQueue(storage) as q:
            first = await q.enqueue("t", b"0")
            outcomes = await asyncio.gather(
                q.enqueue("t", b"1"),
                q.nack("no such job"),
                q.dequeue("t", batch_size=5),
                q.ack("nor this"),
                q.ack(first.id),
                return_exceptions=True,
            )
            job, missing, claimed, unknown, done = outcomes
            assert job.payload == b"1"
            assert [type(error) for error in (missing, unknown)] == [JobNotFoundError] * 2
            assert (missing.job_id, unknown.job_id) == ("no such job", "nor this")
            assert [found.payload for found in claimed] == [b"0", b"1"]
            assert done is None

    asyncio.run(main())


def test_many_callers_share_batches(storage):
    async def cycle(q, done):
        for _ in range(20):
            await q.enqueue("t", b"x")
            [job] = await q.dequeue("t")
            done.append(job.id)
            await q.ack(job.id)

    async def main():
        done = []
        async with BrokerQueue(storage) as q:
            await asyncio.gather(*(cycle(q, done) for _ in range(20)))
            state = await q.read_state()
        assert len(set(done)) == len(done) == 400
        assert state.jobs == ()
        assert state.version < 1200

    asyncio.run(main())


def test_leaving_drains_what_was_called(storage):
    async def main():
        async with BrokerQueue(storage) as q:
            calls = [asyncio.create_task(q.enqueue("t", b"%d" % number)) for number in range(50)]
            await asyncio.sleep(0)
        assert all(call.done() for call in calls)
        assert len((await q.read_state()).jobs) == 50

    asyncio.run(main())


def test_leaving_after_an_error_drains_too(storage):
    async def main():
        q = BrokerQueue(storage)
        calls = []

        async def fails():
            async with q:
                calls.extend(asyncio.create_task(q.enqueue("t", b"")) for _ in range(5))
                await asyncio.sleep(0)
                raise KeyError

        with pytest.raises(KeyError):
            await fails()
        assert len((await q.read_state()).jobs) == len(calls) == 5

    asyncio.run(main())


def test_leaving_waits_for_the_write_under_way():
    async def main():
        gate = Gate()
        q = GroupCommitLoop(gate)
        await q.start()
        first = asyncio.create_task(q.enqueue("t", b"1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stopping = asyncio.create_task(q.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        gate.opened.set()
        await stopping
        assert first.done()

    asyncio.run(main())


def test_a_cancelled_writer_is_told_and_nobody_waits_for_it():
    async def main():
        q = GroupCommitLoop(gate := Gate())
        await q.start()
        call = asyncio.create_task(q.enqueue("t", b""))

        async def reached():
            return gate.waiting

        await until(reached)
        for task in asyncio.all_tasks() - {asyncio.current_task(), call}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(JQueueError, match="task was cancelled"):
            await q.enqueue("t", b"")
        await q.stop()

    asyncio.run(main())


def test_no_thread_stays_behind(tmp_path):
    async def main():
        async with BrokerQueue(LocalFileSystemStorage(tmp_path / "q", journal=True)) as q:
            await q.enqueue("t", b"")

        async def removed():
            return not [thread for thread in threading.enumerate() if thread.name == "objectstore-writer"]

        await until(removed)

    asyncio.run(main())


def test_a_call_cancelled_before_its_batch_is_not_made(storage):
    async def main():
        async with BrokerQueue(storage) as q:
            call = asyncio.create_task(q.enqueue("t", b""))
            await asyncio.sleep(0)
            call.cancel()
            kept = await q.enqueue("t", b"kept")
            with contextlib.suppress(asyncio.CancelledError):
                await call
            jobs = (await q.read_state()).jobs
            assert kept.id in {job.id for job in jobs}
            assert len(jobs) <= 2

    asyncio.run(main())


@pytest.mark.parametrize("queue", [BrokerQueue, DirectQueue])
def test_what_a_cancelled_caller_had_claimed_waits_again(tmp_path, journal_gate, queue):
    async def main():
        q = queue(LocalFileSystemStorage(tmp_path / "q", journal=True))
        async with q if isinstance(q, BrokerQueue) else contextlib.nullcontext():
            await q.enqueue("t", b"x")
            journal_gate.close()
            call = asyncio.create_task(q.dequeue("t"))
            await asyncio.to_thread(journal_gate.reached.wait, 20)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            journal_gate.opened.set()
        [job] = await until_waiting(q)
        assert job.status is JobStatus.QUEUED

    asyncio.run(main())


async def until_waiting(q):
    found = []

    async def holds():
        found[:] = (await q.read_state()).queued_jobs()
        return found

    await until(holds)
    return found


@pytest.mark.parametrize("journal", [False, True])
def test_an_unusable_folder_is_reported(tmp_path, journal):
    (tmp_path / "file").write_bytes(b"")

    async def main():
        storage = LocalFileSystemStorage(tmp_path / "file" / "queue.json", journal=journal)
        with pytest.raises(StorageError, match="queue.json"):
            await DirectQueue(storage).enqueue("t", b"")
        async with BrokerQueue(storage) as q:
            with pytest.raises(StorageError, match="queue.json"):
                await q.enqueue("t", b"")

    asyncio.run(main())


def test_more_than_a_batch_is_several(storage):
    async def main():
        async with BrokerQueue(storage) as q:
            await asyncio.gather(*(q.enqueue("t", b"") for _ in range(BATCH_COMMANDS + 10)))
            first = (await q.read_state()).version
            await asyncio.gather(*(q.enqueue("big", b"x" * (BATCH_BYTES // 2)) for _ in range(3)))
            assert first >= 2
            assert (await q.read_state()).version - first >= 2
            assert len(await q.dequeue("big", batch_size=10)) == 3

    asyncio.run(main())


def test_a_queue_in_memory_lets_others_run():
    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        storage = InMemoryStorage()
        async with BrokerQueue(storage) as q:
            for _ in range(10):
                await q.enqueue("t", b"")
                await DirectQueue(storage).dequeue()
        task.cancel()
        assert turns >= 20

    asyncio.run(main())


def test_a_queue_outlives_its_event_loop(storage):
    q, direct = BrokerQueue(storage), DirectQueue(storage)

    async def put():
        async with q:
            await q.enqueue("t", b"1")
        await direct.enqueue("t", b"2")

    async def get():
        async with q:
            [first] = await q.dequeue()
        [second] = await direct.dequeue()
        return first.payload, second.payload

    asyncio.run(put())
    assert asyncio.run(get()) == (b"1", b"2")


def test_leases_are_the_claimers(tmp_path):
    async def main():
        storage = LocalFileSystemStorage(tmp_path / "q", journal=True)
        async with (
            BrokerQueue(storage, stale_timeout=timedelta(0)) as hasty,
            BrokerQueue(storage) as patient,
        ):
            await patient.enqueue("t", b"1")
            await patient.enqueue("t", b"2")
            [short] = await hasty.dequeue()
            [again] = await patient.dequeue()
            assert again.id == short.id
            assert again.redelivered
            assert not (await patient.dequeue())[0].redelivered
            assert await hasty.dequeue() == []

    asyncio.run(main())
