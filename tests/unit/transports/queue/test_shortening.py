"""A journal is kept short beside the work, which does not fail when that does."""

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.journal.port import Journal
from ami.transports.objectstore.queue import shortener
from ami.transports.objectstore.queue.commands import Ack, Take
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak
from tests.support.transports.queue_state import picture
from tests.support.transports.small_stores import POWER_FAILURE, claim, content, held, message, publish, snapshots_every
from tests.support.transports.watched_journal import WatchedJournal

SEGMENT_BYTES = 4000
SNAPSHOT_BYTES = 10_000


class Place:
    """One journal, which each call opens as another process would."""

    def __init__(self, opening: Callable[[], Journal], segments: Callable[[], int]) -> None:
        self._opening = opening
        #: How many closed segments there are.
        self.segments = segments

    def __call__(self) -> WatchedJournal:
        return WatchedJournal(self._opening())


@pytest.fixture(params=["folder", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "objects":
        objects = MemoryObjects()
        return Place(
            lambda: ObjectJournal(objects, segment_bytes=SEGMENT_BYTES), lambda: len(objects.list("segments/"))
        )
    folder = tmp_path / "queue"
    return Place(
        lambda: FolderJournal(folder, power_failure=POWER_FAILURE, durable=False, segment_bytes=SEGMENT_BYTES),
        lambda: len(list(folder.glob("*.log"))) - 1,
    )


@pytest.fixture
def journal(place: Place) -> WatchedJournal:
    return place()


@pytest.fixture(autouse=True)
def _often():
    with snapshots_every(SNAPSHOT_BYTES):
        yield


def churn(store: Store, count: int = 100, size: int = 500) -> None:
    """Let messages come and go."""
    for number in range(count):
        publish(store, f"churn-{number}", size=size)
        claim(store, 1)
        store.commit([Ack(f"churn-{number}")])


def test_segments_that_nobody_needs_are_dropped(place: Place, journal: WatchedJournal):
    store = Store(journal)
    store.look()
    churn(store, 300)
    assert place.segments() < 12
    assert held(Store(place())) == {}


def test_a_few_old_messages_do_not_keep_their_segments(place: Place, journal: WatchedJournal):
    store = Store(journal)
    store.look()
    stays = {}
    for number in range(40):
        name = f"stays-{number}"
        stays[name] = content(name, 300)
        publish(store, name, size=300)
        claim(store, 1, seconds=None)
        churn(store, 6)
    churn(store, 100)
    assert place.segments() < 25
    for reader in (store, Store(place())):
        assert held(reader) == stays
        with reader.lock:
            assert all(entry.owner == "worker" for entry in reader.look().entries.values())


def test_many_small_messages_that_stay_are_moved_as_fast_as_they_come(
    place: Place, journal: WatchedJournal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shortener, "MOVED_AT_ONCE", 3)
    store = Store(journal)
    store.look()
    count = soak(150, 400)
    for number in range(count):
        publish(store, f"stays-{number}", size=10)
        claim(store, 1, seconds=None)
        churn(store, 2)
    churn(store, 100)
    live = sum(store.look().in_segment.values())
    assert place.segments() * SEGMENT_BYTES < 6 * live
    assert len(held(Store(place()))) == count


def test_what_was_moved_is_read_by_who_knows_only_its_old_place(place: Place, journal: WatchedJournal):
    store, reader = Store(journal), Store(place())
    store.look()
    publish(store, "stays", size=100)
    entry = reader.look().entries["stays"]
    old = entry.segment, entry.offset
    churn(store, 300)
    reader._journal.forget()
    reader.close()
    assert reader.payload(entry) == content("stays", 100)
    moved = reader.look().entries["stays"]
    assert (moved.segment, moved.offset) != old


def test_what_was_taken_can_be_read_though_others_drop_its_segment(place: Place, journal: WatchedJournal):
    store, taker = Store(journal), Store(place())
    store.look()
    # So large that its segment is not emptied, and behind all others.
    store.commit([message("taken", 3000)._replace(priority=9)])
    churn(store, 60)
    [[entry]] = taker.commit([Take(1)])
    assert entry.id == "taken"
    churn(store, 15)
    assert taker.payload(entry) == content("taken", 3000)
    churn(store, 60)
    with pytest.raises(StorageError, match="missing"):
        Store(place()).payload(entry)


def test_a_snapshot_that_fails_does_not_fail_the_commit(
    place: Place, journal: WatchedJournal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    tries: list[int] = []

    def fail(snapshot: bytes, live: set[int]) -> None:
        tries.append(journal.grown)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "save", fail, raising=False)
    store = Store(journal)
    store.look()
    with caplog.at_level(logging.WARNING):
        churn(store, 100)
    assert "No space left" in caplog.text
    # Each try costs what the queue holds: it is not made with every commit.
    assert 2 < len(tries) < 0.2 * len(journal.batches)
    assert all(later - earlier >= SNAPSHOT_BYTES // 4 for earlier, later in pairwise(tries))
    monkeypatch.undo()
    with snapshots_every(SNAPSHOT_BYTES):
        churn(store, 20)
    assert held(Store(place())) == {}
    assert picture(store.look()) == picture(Store(place()).look())


def test_a_move_that_fails_does_not_fail_the_commit(place: Place, journal: WatchedJournal):
    def fail(batch):
        if batch.lines[0][0] == "m":
            journal.before = lambda batch: None
            raise StorageError("not well")

    journal.before = fail
    store = Store(journal)
    store.look()
    publish(store, "stays", size=100)
    claim(store, 1, seconds=None)
    churn(store, 100)
    assert journal.before is not fail
    assert held(store) == {"stays": content("stays", 100)}
    assert picture(store.look()) == picture(Store(place()).look())


def test_an_interrupted_move_leaves_the_state_of_the_journal(place: Place, journal: WatchedJournal):
    def fail(batch):
        if batch.lines[0][0] == "m":
            journal.after = lambda batch: None
            raise KeyboardInterrupt

    journal.after = fail
    store = Store(journal)
    store.look()
    publish(store, "stays", size=100)
    claim(store, 1, seconds=None)
    with pytest.raises(KeyboardInterrupt):
        churn(store, 100)
    assert held(store)["stays"] == content("stays", 100)
    assert picture(store.look()) == picture(Store(place()).look())


def test_a_snapshot_waits_until_it_pays(place: Place, journal: WatchedJournal, monkeypatch: pytest.MonkeyPatch):
    saved: list[tuple[int, int]] = []
    save = journal.save

    def record(snapshot: bytes, live: set[int]) -> None:
        saved.append((journal.grown, len(snapshot)))
        save(snapshot, live)

    monkeypatch.setattr(journal, "save", record, raising=False)
    monkeypatch.setattr(journal, "snapshot_share", 4, raising=False)
    store = Store(journal)
    store.look()
    for first in range(0, 2000, 50):
        publish(store, *map(str, range(first, first + 50)), durable=False)
    churn(store, 300)
    assert len(saved) > 1
    assert all(grown >= 4 * size for (_, size), (grown, _) in pairwise(saved))
