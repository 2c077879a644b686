"""A queue in one regular file: whole states by compare-and-set, also beside programs of the seed's library."""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import stat

import pytest

from ami.jqueue import BrokerQueue, CASConflictError, DirectQueue, LocalFileSystemStorage, StorageError
from ami.jqueue.adapters.storage import file_blob
from tests.support.soak import soak


def run(coroutine):
    return asyncio.run(coroutine)


def test_path_that_will_be_a_file_is_one_in_the_wire_format(tmp_path):
    path = tmp_path / "queue.json"

    async def main():
        async with BrokerQueue(LocalFileSystemStorage(path)) as q:
            await q.enqueue("t", b"x")
            await DirectQueue(LocalFileSystemStorage(str(path))).enqueue("t", b"y")

    run(main())
    assert path.is_file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [job["payload"] for job in json.loads(path.read_bytes())["jobs"]] == ["eA==", "eQ=="]
    assert os.listdir(tmp_path) == ["queue.json"]


def test_file_stays_a_file_with_its_mode(tmp_path):
    path = tmp_path / "queue.json"
    path.write_bytes(b'{"version": 3, "jobs": []}')
    path.chmod(0o640)
    run(DirectQueue(LocalFileSystemStorage(path)).enqueue("t", b""))
    assert json.loads(path.read_bytes())["version"] == 4
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_link_to_a_file_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "queue.json"
    link.symlink_to(tmp_path / "elsewhere" / "queue.json")
    for _ in range(2):
        run(DirectQueue(LocalFileSystemStorage(link)).enqueue("t", b""))
    assert link.is_symlink()
    assert len(json.loads((tmp_path / "elsewhere" / "queue.json").read_bytes())["jobs"]) == 2


def test_storage_is_usable_by_itself(tmp_path):
    async def main():
        storage = LocalFileSystemStorage(tmp_path / "a" / "queue.json")
        assert storage.path == tmp_path / "a" / "queue.json"
        assert await storage.read() == (b"", None)
        first = await storage.write(b"1", if_match=None)
        assert first == hashlib.sha256(b"1").hexdigest()
        for stale in (None, "other"):
            with pytest.raises(CASConflictError):
                await storage.write(b"2", if_match=stale)
        assert await storage.read() == (b"1", first)
        second = await storage.write(b"2", if_match=first)
        assert await storage.read() == (b"2", second)

    run(main())


def test_empty_file_is_an_empty_queue(tmp_path):
    path = tmp_path / "q"
    path.write_bytes(b"")

    async def main():
        q = DirectQueue(LocalFileSystemStorage(path))
        assert await q.dequeue() == []
        await q.enqueue("t", b"")
        assert len(await q.dequeue()) == 1

    run(main())


def test_file_in_another_format_is_left_alone(tmp_path):
    path = tmp_path / "holiday.txt"
    path.write_bytes(b"photographs")
    with pytest.raises(StorageError, match="not a queue in JSON"):
        run(DirectQueue(LocalFileSystemStorage(path)).enqueue("t", b""))
    assert path.read_bytes() == b"photographs"


def test_full_disk_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "queue.json"
    q = DirectQueue(LocalFileSystemStorage(path))
    job = run(q.enqueue("t", b"kept"))

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(file_blob.os, "fsync", full)
        with pytest.raises(StorageError, match="queue.json failed: .*No space left") as caught:
            run(q.enqueue("t", b"lost"))
    assert isinstance(caught.value.cause, OSError)
    assert os.listdir(tmp_path) == ["queue.json"]
    assert [found.id for found in run(q.read_state()).jobs] == [job.id]


@pytest.mark.parametrize("before", [b"", b"longer than the new content"])
def test_program_that_waits_for_the_replaced_file_finds_the_new_content(tmp_path, before):
    """The seed's library opens the file, waits for its lock, compares the content, and writes into what it opened."""
    path = tmp_path / "queue.json"
    path.write_bytes(before)
    with open(path, "rb") as waiting:
        run(LocalFileSystemStorage(path).write(b"new", hashlib.sha256(before).hexdigest() if before else None))
        assert not os.path.samestat(os.fstat(waiting.fileno()), path.stat())
        fcntl.flock(waiting, fcntl.LOCK_SH)
        assert waiting.read() == path.read_bytes() == b"new"


def test_writer_waits_for_a_program_that_holds_the_file(tmp_path):
    path = tmp_path / "queue.json"
    path.write_bytes(b"old")
    etag = hashlib.sha256(b"old").hexdigest()

    async def main():
        with open(path, "r+b") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            late = asyncio.create_task(LocalFileSystemStorage(path).write(b"lost", etag))
            other.write(b"NEW")
            other.flush()
            assert not late.done()
        with pytest.raises(CASConflictError):
            await late

    run(main())
    assert path.read_bytes() == b"NEW"


def _enqueue(path, begin, name):
    begin.wait(60)

    async def main():
        async with BrokerQueue(LocalFileSystemStorage(path)) as q:
            for number in range(10):
                await q.enqueue(name, b"%d" % number)

    run(main())


@pytest.mark.processes
def test_processes_that_share_a_file_lose_nothing(tmp_path):
    path = tmp_path / "queue.json"
    forking = multiprocessing.get_context("fork")
    begin = forking.Barrier(3)
    processes = [forking.Process(target=_enqueue, args=(path, begin, name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    state = run(DirectQueue(LocalFileSystemStorage(path)).read_state())
    assert state.version == 30
    for name in "abc":
        assert [job.payload for job in state.queued_jobs(name)] == [b"%d" % number for number in range(10)]


def _enqueue_for_ever(path, answered):
    async def main():
        async with BrokerQueue(LocalFileSystemStorage(path)) as q:
            while True:
                answered.send((await q.enqueue("t", os.urandom(2000))).id)

    run(main())


@pytest.mark.processes
def test_killed_writer_loses_nothing_that_was_answered(tmp_path):
    path, answered = tmp_path / "queue.json", []
    forking = multiprocessing.get_context("fork")
    for kill in range(soak(4, 40)):
        ours, theirs = forking.Pipe(duplex=False)
        writer = forking.Process(target=_enqueue_for_ever, args=(path, theirs))
        writer.start()
        theirs.close()
        answered += [ours.recv() for _ in range(3 + kill % 4)]
        writer.kill()
        with contextlib.suppress(EOFError):
            while True:
                answered.append(ours.recv())
        writer.join(60)
        jobs = run(DirectQueue(LocalFileSystemStorage(path)).read_state()).jobs
        assert set(answered) <= {job.id for job in jobs}
