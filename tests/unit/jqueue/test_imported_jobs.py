"""Queues that were one JSON document before: their jobs come along, once, and the document is kept."""

import asyncio
import multiprocessing
from datetime import UTC, datetime, timedelta

import pytest

from ami.jqueue import (
    BrokerQueue,
    DirectQueue,
    InMemoryStorage,
    Job,
    JobStatus,
    JQueueError,
    LocalFileSystemStorage,
    QueueState,
    StorageError,
)
from ami.jqueue.adapters.storage.imported_jobs import import_blob
from ami.jqueue.core.codec import decode, encode
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.storage.memory import MemoryObjects

NOW = datetime.now(UTC)
#: Within the lease that an import gives what was in progress, however long after this module was read a test runs.
FRESH = NOW + timedelta(hours=12)


def job(number, status=JobStatus.QUEUED, heartbeat_at=None, priority=0):
    return Job(
        id=str(number),
        entrypoint="t",
        payload=b"payload %d" % number,
        status=status,
        priority=priority,
        created_at=NOW - timedelta(hours=1) + timedelta(seconds=number),
        heartbeat_at=heartbeat_at,
    )


STATE = QueueState(
    version=9,
    jobs=(
        job(1),
        job(2, JobStatus.IN_PROGRESS, FRESH),
        job(3, priority=-1),
        job(4, JobStatus.IN_PROGRESS, NOW - timedelta(hours=1)),
        job(5, JobStatus.DEAD),
    ),
)


async def holds_the_state(q):
    """Look at, then work off, what `STATE` holds."""
    state = await q.read_state()
    assert {found.id: found.status.value for found in state.jobs} == {
        "1": "queued",
        "2": "in_progress",
        "3": "queued",
        "4": "in_progress",
        "5": "dead",
    }
    assert {found.payload for found in state.jobs} == {found.payload for found in STATE.jobs}
    # Of those in progress, the one that gave no sign of life for an hour is delivered again.
    assert [found.id for found in await q.dequeue("t", batch_size=10)] == ["3", "4", "1"]
    for number in ("1", "2", "3", "4", "5"):
        await q.ack(number)
    assert (await q.read_state()).jobs == ()


def test_initial_content_with_jobs():
    asyncio.run(holds_the_state(DirectQueue(InMemoryStorage(initial_content=encode(STATE)))))


def test_initial_content_in_another_format():
    with pytest.raises(StorageError, match="not a queue in JSON"):
        asyncio.run(DirectQueue(InMemoryStorage(initial_content=b"?")).read_state())


def test_a_file_becomes_a_folder_and_is_kept(tmp_path):
    path = tmp_path / "queue.json"
    path.write_bytes(encode(STATE))
    asyncio.run(holds_the_state(DirectQueue(LocalFileSystemStorage(path))))
    assert path.is_dir()
    assert (tmp_path / "queue.json.imported").read_bytes() == encode(STATE)
    assert asyncio.run(DirectQueue(LocalFileSystemStorage(path)).read_state()).jobs == ()


def test_an_empty_file_is_an_empty_queue(tmp_path):
    (tmp_path / "q").write_bytes(b"")
    assert asyncio.run(DirectQueue(LocalFileSystemStorage(tmp_path / "q")).dequeue()) == []


def test_a_file_in_another_format_is_left_alone(tmp_path):
    path = tmp_path / "holiday.txt"
    path.write_bytes(b"photographs")
    with pytest.raises(StorageError, match="not a queue in JSON"):
        asyncio.run(DirectQueue(LocalFileSystemStorage(path)).enqueue("t", b""))
    assert path.read_bytes() == b"photographs"


def test_an_earlier_import_is_never_written_over(tmp_path):
    (tmp_path / "q.imported").write_bytes(b"earlier")
    (tmp_path / "q").write_bytes(encode(STATE))
    asyncio.run(DirectQueue(LocalFileSystemStorage(tmp_path / "q")).read_state())
    assert (tmp_path / "q.imported").read_bytes() == b"earlier"
    assert (tmp_path / "q.imported-2").read_bytes() == encode(STATE)


@pytest.mark.parametrize("step", ["import_jobs", "rename", "rename again"])
def test_killed_in_the_middle_the_next_one_finishes(tmp_path, monkeypatch, step):
    """Every step of an import fails once; the queue then has every job once."""
    from ami.jqueue.adapters.storage import filesystem

    class Killed(BaseException):
        pass

    path = tmp_path / "queue.json"
    path.write_bytes(encode(STATE))
    renames = []
    rename = type(path).rename

    def killed_import(store, state):
        raise Killed

    def killed_rename(self, target):
        renames.append(self)
        if len(renames) == (1 if step == "rename" else 2):
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patched:
        if step == "import_jobs":
            patched.setattr(filesystem, "import_jobs", killed_import)
        else:
            patched.setattr(type(path), "rename", killed_rename)
        with pytest.raises(Killed):
            LocalFileSystemStorage(path).store()
    asyncio.run(holds_the_state(DirectQueue(LocalFileSystemStorage(path))))
    assert (tmp_path / "queue.json.imported").read_bytes() == encode(STATE)


def _take_one(path, begin, results):
    begin.wait(60)
    results.put([found.id for found in asyncio.run(DirectQueue(LocalFileSystemStorage(path)).dequeue())])


@pytest.mark.processes
def test_processes_that_open_it_at_once_import_it_once(tmp_path):
    path = tmp_path / "queue.json"
    path.write_bytes(encode(QueueState(jobs=tuple(job(number) for number in range(3)))))
    forking = multiprocessing.get_context("fork")
    begin, results = forking.Barrier(3), forking.Queue()
    processes = [forking.Process(target=_take_one, args=(path, begin, results)) for _ in range(3)]
    for process in processes:
        process.start()
    taken = sorted(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert taken == [["0"], ["1"], ["2"]]


def test_a_blob_in_a_bucket_is_emptied_and_kept():
    objects = MemoryObjects()
    objects.create("queues/jobs.json", encode(STATE))
    store = open_store(objects, "queues/jobs.json/")
    for _ in range(2):
        import_blob(store, objects, "queues/jobs.json")
    assert len(store.look().entries) == 5
    assert decode(objects.read("queues/jobs.json").content) == QueueState(version=10)
    assert objects.read("queues/jobs.json.imported-9").content == encode(STATE)


def test_what_an_old_writer_adds_meanwhile_comes_along():
    class Racing(MemoryObjects):
        raced = False

        def replace(self, key, content, version):
            if key == "q" and not self.raced:
                self.raced = True
                super().replace(key, encode(STATE.with_job_added(job(6))), version)
            return super().replace(key, content, version)

    objects = Racing()
    objects.create("q", encode(STATE))
    store = open_store(objects, "q/")
    import_blob(store, objects, "q")
    assert set(store.look().entries) == {"1", "2", "3", "4", "5", "6"}
    assert decode(objects.read("q").content).jobs == ()


def test_into_a_store_with_jobs_what_was_in_progress_waits():
    objects = MemoryObjects()
    objects.create("q", encode(STATE))
    store = open_store(objects, "q/")
    store.commit([Enqueue("0", b"")])
    import_blob(store, objects, "q")
    assert {entry.id for entry in store.look().entries.values() if entry.is_waiting} == {"0", "1", "2", "3", "4"}


def test_a_storage_in_memory_serves_storages_that_wrap_it():
    class Wrapping:
        """A storage of a user's that counts what it passes on."""

        def __init__(self, inner):
            self.inner = inner
            self.writes = 0

        async def read(self):
            return await self.inner.read()

        async def write(self, content, if_match=None):
            self.writes += 1
            return await self.inner.write(content, if_match)

    async def main():
        inner = InMemoryStorage()
        wrapped = Wrapping(inner)
        async with BrokerQueue(wrapped) as q:
            await asyncio.gather(*(q.enqueue("t", b"%d" % number) for number in range(3)))
            [first] = await q.dequeue()
            await q.ack(first.id)
        assert wrapped.writes == 3
        # From the first use by a queue itself on, only queues change it.
        assert len(await DirectQueue(inner).dequeue(batch_size=9)) == 2
        with pytest.raises(JQueueError, match="InMemoryStorage keeps a journal"):
            await DirectQueue(wrapped).enqueue("t", b"")

    asyncio.run(main())


@pytest.mark.parametrize("make", [lambda folder: InMemoryStorage(), LocalFileSystemStorage])
def test_a_journal_is_read_in_the_wire_format(tmp_path, make):
    storage = make(tmp_path / "q")

    async def main():
        q = DirectQueue(storage)
        made = await q.enqueue("t", b"x")
        content, etag = await storage.read()
        assert [found.id for found in decode(content).jobs] == [made.id]
        assert etag is not None
        with pytest.raises(JQueueError, match="keeps a journal: give it to a queue itself"):
            await storage.write(content, etag)

    asyncio.run(main())


def test_a_journal_without_anything_reads_as_nothing(tmp_path):
    assert asyncio.run(LocalFileSystemStorage(tmp_path / "q").read()) == (b"", None)
