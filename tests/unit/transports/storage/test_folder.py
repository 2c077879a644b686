"""What a folder keeps through torn files, killed processes, forks and full disks."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from ami.transports.objectstore.storage import lock
from ami.transports.objectstore.storage.errors import CASConflictError, StorageError
from ami.transports.objectstore.storage.folder import LEFT_BEHIND_SECONDS, FolderObjects
from ami.transports.objectstore.storage.port import Stored

ROOT = Path(__file__).parents[4]
CONTENT = b"some content\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def storage(folder: Path) -> FolderObjects:
    return FolderObjects(folder, lock_seconds=0.2)


def process(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start Python on a few lines that find the arguments in ``sys.argv``."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# Torn files.


def test_a_file_torn_at_any_byte_is_told_from_a_whole_one(storage: FolderObjects, folder: Path):
    version = storage.create("a", CONTENT)
    file = folder / "a"
    whole = file.read_bytes()
    torn = [whole[:length] for length in range(len(whole))]
    torn += [
        whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)
    ]
    torn += [whole + b"\0", whole + whole, b"\0" * len(whole)]
    for content in torn:
        file.write_bytes(content)
        with pytest.raises(StorageError, match=f"'{file}' is torn"):
            storage.read("a")
    file.write_bytes(whole)
    assert storage.read("a") == Stored(CONTENT, version)


def test_a_torn_object_can_be_removed_but_not_replaced(storage: FolderObjects, folder: Path):
    version = storage.create("a", CONTENT)
    (folder / "a").write_bytes(b"")
    with pytest.raises(StorageError, match="torn"):
        storage.replace("a", b"", version)
    with pytest.raises(CASConflictError):
        storage.create("a", b"")
    assert storage.list("") == ["a"]
    storage.delete("a")
    storage.create("a", CONTENT)


# Names.


def test_no_key_leaves_the_folder(storage: FolderObjects, folder: Path):
    keys = ["...", "..a", ".lock", ".unfinished", "~", "$HOME", "a b/ü\n", "%2e%2e", "%2F", "\\..\\", "n" * 200, "+/+"]
    for key in keys:
        version = storage.create(key, b"")
        storage.replace(key, key.encode(), version)
    assert {key: storage.read(key).content for key in keys} == {key: key.encode() for key in keys}
    assert storage.list("") == sorted(keys)
    assert os.listdir(folder.parent) == ["objects"]
    assert (folder / ".lock").read_bytes() == b""


def test_somebody_elses_files_are_not_listed(storage: FolderObjects, folder: Path):
    storage.create("a/b", CONTENT)
    (folder / "a b").write_bytes(b"")
    (folder / ".DS_Store").write_bytes(b"")
    (folder / "a+" / "%zz").write_bytes(b"")
    (folder / "other").mkdir()
    (folder / "other" / "file").write_bytes(b"")
    assert storage.list("") == ["a/b"]


def test_only_the_owner_can_look_inside(storage: FolderObjects, folder: Path):
    storage.create("a/b", CONTENT)
    modes = {path.stat().st_mode & 0o077 for path in [folder, *folder.rglob("*")]}
    assert modes == {0}


def test_the_folder_stays_when_the_process_goes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    storage = FolderObjects("objects")
    storage.create("a", CONTENT)
    monkeypatch.chdir("/")
    assert storage.list("") == ["a"]


def test_a_file_in_its_place_is_an_error(tmp_path: Path):
    (tmp_path / "objects").write_text("not a folder")
    with pytest.raises(StorageError, match="cannot make .*objects: Not a directory") as raised:
        FolderObjects(tmp_path / "objects")
    assert isinstance(raised.value.cause, NotADirectoryError)


# Signatures.


def test_no_two_versions_have_the_same_signature(folder: Path):
    storage = FolderObjects(folder, durable=False)
    assert storage.signature("a") is None
    version = storage.create("a", CONTENT)
    seen = {storage.signature("a")}
    for _ in range(300):
        version = storage.replace("a", CONTENT, version)
        assert storage.signature("a") == storage.signature("a")
        seen.add(storage.signature("a"))
    assert len(seen) == 301


def test_a_signature_is_finer_than_a_tick_of_the_kernels_clock(folder: Path):
    storage = FolderObjects(folder, durable=False)
    times, time_ns = [], time.time_ns

    def ask() -> int:
        times.append(time_ns())
        return times[-1]

    with patch.object(time, "time_ns", ask):
        for number in range(20):
            storage.create(f"{number}", CONTENT)
    assert [storage.signature(f"{number}")[1] for number in range(20)] == times


# Power failures and full disks.


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were written to disk, in order."""
    paths, fsync = [], os.fsync

    def record(fd: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_a_write_returns_when_it_is_on_disk(folder: Path, synced: list[str]):
    storage = FolderObjects(folder)
    synced.clear()
    version = storage.create("a/b", CONTENT)
    file, made, linked = synced
    assert (Path(file).parent, made, linked) == (folder / ".unfinished", str(folder), str(folder / "a+"))
    synced.clear()
    storage.replace("a/b", CONTENT, version)
    file, renamed = synced
    assert (Path(file).parent, renamed) == (folder / ".unfinished", str(folder / "a+"))
    synced.clear()
    storage.delete("a/b")
    assert synced == [str(folder / "a+")]


def test_nothing_waits_for_the_disk_where_that_is_not_asked_for(folder: Path, synced: list[str]):
    storage = FolderObjects(folder, durable=False)
    storage.replace("a/b", CONTENT, storage.create("a/b", CONTENT))
    storage.delete("a/b")
    assert synced == []


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Let files grow to so many bytes, like a disk that is full then: also the one that pytest reports to."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_what_was_there(storage: FolderObjects, folder: Path):
    version = storage.create("a", CONTENT)
    with small_files(100_000):
        with pytest.raises(StorageError, match="cannot replace 'a'") as raised:
            storage.replace("a", b"x" * 200_000, version)
        assert isinstance(raised.value.cause, OSError)
        with pytest.raises(StorageError, match="cannot create 'b'"):
            storage.create("b", b"x" * 200_000)
    assert storage.read("a") == Stored(CONTENT, version)
    assert storage.list("") == ["a"]
    assert os.listdir(folder / ".unfinished") == []


# Processes that die.

REPLACE_FOREVER = """
import sys
from ami.transports.objectstore.storage.folder import FolderObjects
storage = FolderObjects(sys.argv[1])
version, count = storage.create("a", b"0"), 0
while True:
    version, count = storage.replace("a", b"%d" % (count + 1) * 1000, version), count + 1
    print(count, flush=True)
"""


@pytest.mark.processes
def test_a_killed_writer_leaves_a_whole_object(folder: Path):
    for number in range(6):
        writer = process(REPLACE_FOREVER, folder / str(number))
        answered = 0
        for _ in range(1 + 7 * number):
            answered = int(writer.stdout.readline())
        writer.kill()
        # Not by `communicate`, which knows nothing of what was read beyond the last line already.
        answered = int((writer.stdout.read().split() or [answered])[-1])
        writer.communicate()
        storage = FolderObjects(folder / str(number), lock_seconds=0.2)
        stored = storage.read("a")
        assert stored.content in (b"%d" % answered * 1000, b"%d" % (answered + 1) * 1000)
        storage.replace("a", CONTENT, stored.version)
        assert storage.list("") == ["a"]


def test_what_a_killed_writer_left_is_removed_when_it_is_old(storage: FolderObjects, folder: Path):
    young, old = folder / ".unfinished" / "young", folder / ".unfinished" / "old"
    for file in (young, old):
        file.write_bytes(b"")
    aged = time.time() - LEFT_BEHIND_SECONDS - 1
    os.utime(old, (aged, aged))
    assert storage.list("") == []
    FolderObjects(folder)
    assert os.listdir(folder / ".unfinished") == ["young"]


# Locks.


def test_a_lock_that_others_keep_is_an_error(storage: FolderObjects, folder: Path):
    version = storage.create("a", CONTENT)
    with lock.locked(f"{folder}/.lock", 1):
        for use in (lambda: storage.replace("a", b"", version), lambda: storage.delete("a")):
            with pytest.raises(StorageError, match="locked by others for 0.2 s"):
                use()
        with pytest.raises(CASConflictError):
            storage.create("a", b"")
        storage.create("b", b"")
        assert storage.read("a") == Stored(CONTENT, version)
    storage.replace("a", b"", version)


FORK_WHILE_ANOTHER_THREAD_HOLDS_THE_LOCK = """
import os, sys, threading
from ami.transports.objectstore.storage.lock import locked
held, forever = threading.Event(), threading.Event()
def hold():
    with locked(sys.argv[1], 5):
        held.set()
        forever.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    print("child", flush=True)
    sys.stdin.read()
    os._exit(0)
forever.wait()
"""


@pytest.mark.processes
def test_a_forked_child_keeps_no_lock_of_its_killed_parent(storage: FolderObjects, folder: Path):
    version = storage.create("a", CONTENT)
    parent = process(FORK_WHILE_ANOTHER_THREAD_HOLDS_THE_LOCK, folder / ".lock")
    assert parent.stdout.readline() == "child\n"
    with pytest.raises(StorageError, match="locked"):
        storage.replace("a", b"", version)
    parent.kill()
    parent.wait()
    storage.replace("a", b"", version)
    parent.communicate()


FORK_AND_WRITE = """
import os, sys
from ami.transports.objectstore.storage.folder import FolderObjects
storage = FolderObjects(sys.argv[1])
version = storage.create("a", b"parent")
child = os.fork()
if child == 0:
    version = storage.replace("a", b"child", version)
    os._exit(0 if storage.read("a").version == version else 1)
assert os.waitpid(child, 0)[1] == 0
storage.replace("a", b"parent again", storage.read("a").version)
"""


@pytest.mark.processes
def test_both_sides_of_a_fork_write(storage: FolderObjects, folder: Path):
    forking = process(FORK_AND_WRITE, folder)
    forking.communicate(timeout=120)
    assert forking.returncode == 0
    assert storage.read("a").content == b"parent again"
