"""A full or failing disk is reported, and what was stored stays; later commits succeed."""

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ami.transports.objectstore.queue import snapshot
from ami.transports.objectstore.queue.commands import Ack
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.transports.queue_state import picture
from tests.support.transports.recording_follower import number, on_folder
from tests.support.transports.small_stores import claim, held, publish, snapshots_every, waiting
from tests.support.transports.small_stores import on_folder as store_on_folder

Pwrite = Callable[[int, bytes, int], int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Let files grow to so many bytes, like a disk that is full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("is_blind", [True, False])
def test_a_batch_for_which_the_disk_has_no_room_is_not_there(
    folder: Path, small_files: Callable[[int], None], is_blind: bool
):
    store = store_on_folder(folder, 10**6, durable=True)
    publish(store, "a", "b", size=1000)
    if not is_blind:
        store.look()
    written = (folder / "00000001.log").read_bytes()
    small_files(10_000)
    for _ in range(3):
        with pytest.raises(StorageError, match="took no batch") as raised:
            publish(store, "large", size=20_000)
        assert isinstance(raised.value.cause, OSError)
        # Some of it did fit.
        assert (folder / "00000001.log").read_bytes() == written
        assert publish(store, "a") == [is_blind]
        written = (folder / "00000001.log").read_bytes()
    assert publish(store, "small") == [True]
    small_files(resource.RLIM_INFINITY)
    assert publish(store, "large", size=20_000) == [True]
    for reader in (store, store_on_folder(folder)):
        assert waiting(reader) == ["a", "b", "small", "large"]


def test_a_process_goes_on_beside_one_whose_disk_is_full(folder: Path, small_files: Callable[[int], None]):
    store, other = store_on_folder(folder, 2000), store_on_folder(folder, 2000)
    names = []
    for at in range(40):
        small_files(1500 if at % 2 else resource.RLIM_INFINITY)
        try:
            publish((store, other)[at % 2], str(at), size=100)
            names.append(str(at))
        except StorageError:
            assert at % 2
    assert len(names) < 40
    small_files(resource.RLIM_INFINITY)
    for reader in (store, other, store_on_folder(folder)):
        assert waiting(reader) == names


def test_a_full_disk_takes_no_snapshot_and_leaves_no_part_of_one(folder: Path, small_files: Callable[[int], None]):
    store = store_on_folder(folder, 2000)
    store.look()
    for first in range(0, 300, 50):
        publish(store, *map(str, range(first, first + 50)))
    whole = snapshot.dump(store.look())
    small_files(len(whole) // 2)
    with pytest.raises(StorageError, match="took no snapshot"):
        store._journal.save(whole, set())
    assert [path.name for path in folder.iterdir() if "snapshot" in path.name] == []
    with snapshots_every(1000):
        for at in range(5):
            publish(store, f"later-{at}")
    small_files(resource.RLIM_INFINITY)
    assert len(held(store_on_folder(folder))) == 305


def refuse(error: int) -> Callable[..., int]:
    def raise_it(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    return raise_it


@pytest.mark.parametrize(
    "write",
    [refuse(errno.ENOSPC), refuse(errno.EIO), refuse(errno.EDQUOT), lambda fd, content, at: 0],
    ids=["no space", "no disk", "no quota", "nothing written"],
)
def test_a_write_that_fails_leaves_the_state_as_the_journal_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, write: Pwrite
):
    store = store_on_folder(folder)
    publish(store, *"abc")
    claim(store)
    with monkeypatch.context() as patching:
        patching.setattr(os, "pwrite", write)
        for use in (lambda: publish(store, "d"), lambda: claim(store), lambda: store.commit([Ack("a")])):
            with pytest.raises(StorageError):
                use()
    assert picture(store.look()) == picture(store_on_folder(folder).look())
    assert claim(store, 5) == ["b", "c"]
    store.commit([Ack("a")])
    assert sorted(held(store)) == ["b", "c"]


def test_a_tail_that_cannot_be_written_leaves_the_batch_out(folder: Path, monkeypatch: pytest.MonkeyPatch):
    store = store_on_folder(folder)
    publish(store, "a")
    write: Pwrite = os.pwrite
    with monkeypatch.context() as patching:
        patching.setattr(os, "pwrite", lambda fd, data, at: write(fd, data, at) if len(data) != 36 else refuse(5)())
        with pytest.raises(StorageError):
            publish(store, "b")
    publish(store, "c")
    assert waiting(store) == waiting(store_on_folder(folder)) == ["a", "c"]


def test_without_a_new_segment_the_old_one_is_continued(folder: Path, monkeypatch: pytest.MonkeyPatch):
    reader = on_folder(folder)
    reader.append(*number(7))
    open_file = os.open
    for error in (errno.ENOSPC, errno.EMFILE):
        with monkeypatch.context() as patching:
            patching.setattr(
                os,
                "open",
                lambda path, flags, *mode, error=error: (
                    refuse(error)() if str(path).endswith("2.log") else open_file(path, flags, *mode)
                ),
            )
            with pytest.raises(StorageError):
                reader.append(b"next")
    reader.append(b"next")
    assert reader.all() == on_folder(folder).all() == [*number(7), b"next"]


# A disk that refuses what it was given before.


class Disk:
    """Counts what is asked to be on disk, and refuses it while ``is_broken``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_broken = False
        self.synced: list[str] = []
        self.written: list[tuple[str, int, bytes]] = []
        self._fdatasync, self._pwrite = os.fdatasync, os.pwrite
        monkeypatch.setattr(os, "fdatasync", self._sync)
        monkeypatch.setattr(os, "pwrite", self._write)

    def _sync(self, fd: int) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        self.synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        self._fdatasync(fd)

    def _write(self, fd: int, content: bytes, at: int) -> int:
        self.written.append((os.readlink(f"/proc/self/fd/{fd}"), at, content))
        return self._pwrite(fd, content, at)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_refusing_disk_is_reported_and_the_state_matches_the_journal(folder: Path, disk: Disk):
    store = store_on_folder(folder, durable=True)
    publish(store, "a", "b")
    store.look()
    disk.is_broken = True
    with pytest.raises(StorageError, match="the disk refused what was written"):
        publish(store, "c")
    # It is unknown whether it is stored: here it is.
    assert waiting(store) == ["a", "b", "c"]
    disk.is_broken = False
    assert publish(store, "c") == [False]
    assert picture(store.look()) == picture(store_on_folder(folder).look())


def test_refused_bytes_are_written_again_before_later_confirmations(folder: Path, disk: Disk):
    store = store_on_folder(folder, durable=True)
    publish(store, "a", "b")
    store.look()
    disk.is_broken = True
    with pytest.raises(StorageError):
        publish(store, "c")
    with pytest.raises(StorageError, match="the disk refused"):
        publish(store, "d")
    disk.is_broken = False
    disk.written.clear()
    path = folder / "00000001.log"
    before = path.read_bytes()
    publish(store, "e")
    assert (str(path), 0, before) in disk.written
    assert waiting(store) == waiting(store_on_folder(folder)) == ["a", "b", "c", "e"]
    disk.written.clear()
    publish(store, "f")
    assert [name for name, at, _ in disk.written if name == str(path) and at == 0] == []


def test_a_segment_that_the_disk_refuses_is_not_left_behind(folder: Path, disk: Disk):
    reader = on_folder(folder)
    reader.append(*number(7))
    disk.is_broken = True
    with pytest.raises(StorageError, match="the disk refused"):
        reader.journal.append(b"next", reader.diary, durable=False)
    assert not (folder / "00000002.log").exists()
    disk.is_broken = False
    reader.append(b"next")
    assert on_folder(folder).all() == [*number(7), b"next"]


def test_a_snapshot_is_kept_only_when_its_batches_are_on_disk(folder: Path, disk: Disk):
    reader = on_folder(folder, 10_000)
    reader.append(b"1")
    reader.journal.append(b"2", None, durable=False)
    reader.all()
    disk.is_broken = True
    with pytest.raises(StorageError, match="the disk refused"):
        reader.save()
    assert list(folder.glob("*snapshot*")) == []
    disk.is_broken = False
    with pytest.raises(StorageError, match="were not written again yet"):
        reader.save()
    reader.append(b"3")
    disk.synced.clear()
    reader.save()
    assert disk.synced == [str(folder / "00000001.log")]


def test_only_what_shall_be_durable_waits_for_the_disk(folder: Path, disk: Disk):
    store = store_on_folder(folder, durable=True)
    publish(store, "a")
    disk.synced.clear()
    publish(store, "b", durable=False)
    claim(store)
    assert disk.synced == []
    publish(store, "c")
    assert disk.synced == [str(folder / "00000001.log")]


def test_a_transient_journal_never_waits_for_the_disk(folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    disk.is_broken = True
    reader = on_folder(folder, durable=False)
    reader.append(*number(30))
    reader.save()
    reader.journal.destroy()
    assert reader.all() == []


def test_a_folder_that_cannot_be_made_is_told_of(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=f"{tmp_path}/file/queue cannot be used"):
        on_folder(tmp_path / "file" / "queue")


def test_a_read_that_the_disk_refuses_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch):
    store = store_on_folder(folder)
    publish(store, "a")
    entry = store.look().entries["a"]
    publish(store_on_folder(folder), "b")
    with monkeypatch.context() as patching:
        patching.setattr(os, "pread", refuse(errno.EIO))
        for use in (store.look, lambda: claim(store), lambda: store.payload(entry)):
            with pytest.raises(StorageError):
                use()
    assert sorted(held(store)) == ["a", "b"]
