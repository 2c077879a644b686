"""What lies on the disk is bounded by what the queue holds, not by what went through it."""

import itertools
from pathlib import Path

from ami.transports.objectstore.queue.commands import Ack, Claim
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak
from tests.support.transports.request_counter import RequestCounter
from tests.support.transports.small_stores import content, held, message, on_folder, on_objects, snapshots_every

SEGMENT_BYTES = 512 * 1024
SNAPSHOT_BYTES = 2 * 1024**2
SIZE = 16 * 1024
#: So much goes through the queue.
MIB = soak(40, 2000)
#: So many messages stay; more goes through after the last of them.
STAYING = soak(10, 50)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


numbers = itertools.count()


def flow(store: Store, count: int, size: int = SIZE) -> None:
    """Let messages come and go, 16 at once."""
    for _ in range(0, count, 16):
        messages = [message(f"flows-{next(numbers)}", size)._replace(entrypoint="flow") for _ in range(16)]
        *_, entries = store.commit([*messages, Claim(16, "worker", 60.0, "flow")], durable=False)
        assert len(entries) == 16
        store.commit([Ack(entry.id) for entry in entries], durable=False)


def test_the_disk_stays_bounded_whatever_goes_through(tmp_path: Path):
    folder, largest = tmp_path / "queue", 0
    store = on_folder(folder, SEGMENT_BYTES)
    with snapshots_every(SNAPSHOT_BYTES):
        store.look()
        for each in range(MIB * 1024**2 // SIZE // 160):
            if each < STAYING:
                store.commit([message(f"stays-{each}", 1000)])
            flow(store, 160)
            largest = max(largest, size_of(folder))
    assert largest < 4 * SNAPSHOT_BYTES
    assert held(on_folder(folder, SEGMENT_BYTES)) == {
        f"stays-{each}": content(f"stays-{each}", 1000) for each in range(STAYING)
    }


def test_what_consumers_write_about_one_message_is_bounded_too(tmp_path: Path):
    folder = tmp_path / "queue"
    store = on_folder(folder, 10_000)
    with snapshots_every(40_000):
        store.commit([message("stays", 500)])
        for _ in range(3000):
            [[entry]] = store.commit([Claim(1, "worker", 0.0)], durable=False)
    assert entry.deliveries == 2999
    assert size_of(folder) < 200_000


def test_objects_stay_bounded_whatever_goes_through():
    objects = MemoryObjects()
    storage = RequestCounter(objects)
    store = on_objects(storage, 64 * 1024)
    with snapshots_every(SNAPSHOT_BYTES // 2):
        store.look()
        store.commit([message("stays")])
        most = 0
        for _ in range(20):
            flow(store, 160)
            most = max(most, len(objects.list("")))
    assert storage.traffic.bytes_sent > 40 * 1024**2
    assert most < 60
    assert held(on_objects(objects)) == {"stays": b"stays"}


def test_a_deep_queue_emptied_from_its_middle_frees_its_space(tmp_path: Path):
    folder = tmp_path / "queue"
    store = on_folder(folder, SEGMENT_BYTES)
    with snapshots_every(SNAPSHOT_BYTES):
        store.look()
        for first in range(0, 2000, 100):
            store.commit([message(str(number), 8000) for number in range(first, first + 100)], durable=False)
        assert size_of(folder) > 15_000_000
        # One in twenty stays: of each segment a little.
        for first in range(0, 2000, 100):
            names = [str(number) for number in range(first, first + 100) if number % 20]
            store.commit([Ack(name) for name in names], durable=False)
        flow(store, 1600)
    assert size_of(folder) < 4 * SNAPSHOT_BYTES
    assert held(on_folder(folder)) == {str(number): content(str(number), 8000) for number in range(0, 2000, 20)}
