"""A power failure takes only what was not confirmed, whatever it leaves of the files."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.journal import folder as folder_module
from ami.transports.objectstore.queue.commands import Ack
from ami.transports.objectstore.queue.store import Store
from tests.support.soak import soak
from tests.support.transports.queue_state import assert_consistent
from tests.support.transports.small_stores import claim, content, message, on_folder, publish, snapshots_every

SEGMENT_BYTES = 200


class Disk:
    """Knows what of a folder is surely on disk: contents at their last fsync, and names at the folder's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        #: Open files: no other file can have their inodes.
        self._kept: dict[int, int] = {}
        self._fsync, self._fdatasync = os.fsync, os.fdatasync

    @contextmanager
    def watched(self) -> Iterator[None]:
        with patch.object(os, "fsync", self._synced), patch.object(os, "fdatasync", self._synced):
            yield

    def forget(self) -> None:
        for fd in self._kept.values():
            os.close(fd)

    def _keep(self, path: Path) -> int:
        fd = os.open(path, os.O_RDONLY)
        inode = os.fstat(fd).st_ino
        if inode in self._kept:
            os.close(fd)
        else:
            self._kept[inode] = fd
        return inode

    def _synced(self, fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path == self._folder:
            self._names = {each.name: self._keep(each) for each in path.iterdir()}
        elif path.is_file():
            self._contents[self._keep(path)] = path.read_bytes()

    def fail(self, into: Path, choose: Callable[[int], int]) -> None:
        """Make the folder that is found after a power failure; ``choose(n)`` is some number below n."""
        into.mkdir()
        now = {each.name: each.stat().st_ino for each in self._folder.iterdir()}
        for name in sorted(self._names.keys() | now.keys()):
            inode = self._names.get(name, now.get(name))
            # Names that came or went since then may or may not be as they are now.
            if self._names.get(name) != now.get(name) and choose(2):
                inode = now.get(name)
            if inode is None or (name not in self._names and not choose(2)):
                continue
            surely = self._contents.get(inode, b"")
            path = self._folder / name
            cached = path.read_bytes() if now.get(name) == inode else surely
            (into / name).write_bytes(self._torn(surely, cached, choose))

    def _torn(self, surely: bytes, cached: bytes, choose: Callable[[int], int]) -> bytes:
        """Return what is on disk of a file: some of what was not synced, zeros where it has grown only."""
        if surely == cached or choose(3) == 0:
            return surely
        if not cached.startswith(surely):
            return (surely, cached, b"", bytes(len(cached)))[choose(4)]
        length = len(surely) + choose(len(cached) - len(surely) + 1)
        holes = len(surely) + choose(length - len(surely) + 1)
        return cached[:holes] + (bytes(length - holes) if choose(2) else cached[holes:length])


steps = st.lists(
    st.tuples(st.sampled_from(["publish", "publish", "lazily", "claim", "claim", "ack", "ack", "look"]), st.booleans()),
    min_size=12,
    max_size=60,
)
chances = st.lists(st.integers(0, 2**20), min_size=60, max_size=60)


@settings(max_examples=soak(60, 3000), deadline=None, derandomize=True)
@given(steps, chances, st.integers(300, 3000))
def test_confirmed_batches_survive_a_power_failure(history: list[tuple[str, bool]], chosen: list[int], every: int):
    with tempfile.TemporaryDirectory() as name, snapshots_every(every):
        folder, found = Path(name) / "queue", Path(name) / "found"
        disk, record = Disk(folder), Record()
        with disk.watched():
            stores = [on_folder(folder, SEGMENT_BYTES, durable=True) for _ in range(2)]
            for step, which in history:
                getattr(record, step)(stores[which])
            numbers = iter(chosen)
            disk.fail(found, lambda below: next(numbers, 0) % below)
        disk.forget()
        with patch.object(folder_module, "this_boot", lambda: b"after the power!"):
            assert_nothing_is_lost(record, found)


def assert_nothing_is_lost(record: "Record", folder: Path) -> None:
    store = on_folder(folder, SEGMENT_BYTES, durable=True)
    publish(store, "afterwards")
    for reader in (store, on_folder(folder, SEGMENT_BYTES, durable=True)):
        state = reader.look()
        assert_consistent(state)
        assert record.durable - record.acknowledged <= state.entries.keys()
        assert state.entries.keys() <= record.published | {"afterwards"}
        for entry in state.entries.values():
            assert reader.payload(entry) == content(entry.id, 20)[: entry.length]
            # Who held it may have been at work: the claim that says so may be lost.
            assert entry.redelivered or entry.id == "afterwards"


class Record:
    """What a process did to a queue, and the answers it got."""

    def __init__(self) -> None:
        self.published: set[str] = set()
        self.durable: set[str] = set()
        self.acknowledged: set[str] = set()
        self._claimed: list[str] = []

    def publish(self, store: Store) -> None:
        name = str(len(self.published))
        self.published.add(name)
        store.commit([message(name, 20)])
        self.durable.add(name)

    def lazily(self, store: Store) -> None:
        name = str(len(self.published))
        self.published.add(name)
        store.commit([message(name, 20)], durable=False)

    def claim(self, store: Store) -> None:
        self._claimed += claim(store, 2, seconds=1e6)

    def ack(self, store: Store) -> None:
        for name in self._claimed[:1]:
            self.acknowledged.add(name)
            self._claimed.remove(name)
            store.commit([Ack(name)], durable=False)

    def look(self, store: Store) -> None:
        store.look()


@settings(max_examples=soak(35, 1000), deadline=None, derandomize=True)
@given(steps, chances, st.integers(300, 3000))
def test_a_transient_queue_can_be_used_after_a_power_failure(
    history: list[tuple[str, bool]], chosen: list[int], every: int
):
    with tempfile.TemporaryDirectory() as name, snapshots_every(every):
        folder, found = Path(name) / "queue", Path(name) / "found"
        disk, record = Disk(folder), Record()
        stores = [on_folder(folder, SEGMENT_BYTES) for _ in range(2)]
        for step, which in history:
            getattr(record, step)(stores[which])
        numbers = iter(chosen)
        disk.fail(found, lambda below: next(numbers, 0) % below)
        with patch.object(folder_module, "this_boot", lambda: b"after the power!"):
            store = on_folder(found, SEGMENT_BYTES)
            publish(store, "afterwards")
            for reader in (store, on_folder(found, SEGMENT_BYTES)):
                entries = reader.look().entries
                assert "afterwards" in entries
                assert entries.keys() <= record.published | {"afterwards"}
                for entry in entries.values():
                    assert reader.payload(entry) == content(entry.id, 20)[: entry.length]
