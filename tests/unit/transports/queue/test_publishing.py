"""A process that only publishes does not read the queue, and one that finds nothing writes nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.journal.port import Journal
from ami.transports.objectstore.queue.commands import Ack, Configure, Sweep, Take
from ami.transports.objectstore.queue.store import FOLLOWING_SECONDS, Store
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.transports.small_stores import POWER_FAILURE, Clock, claim, clock, held, message, publish, waiting
from tests.support.transports.watched_journal import WatchedJournal


@pytest.fixture(params=["folder", "objects"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], WatchedJournal]:
    """Each call opens the same journal as another process would."""
    objects = MemoryObjects()
    opening: dict[str, Callable[[], Journal]] = {
        "folder": lambda: FolderJournal(tmp_path / "queue", power_failure=POWER_FAILURE),
        "objects": lambda: ObjectJournal(objects),
    }
    return lambda: WatchedJournal(opening[request.param]())


@pytest.fixture
def journal(opened: Callable[[], WatchedJournal]) -> WatchedJournal:
    return opened()


@pytest.fixture
def other(opened: Callable[[], WatchedJournal]) -> Store:
    return Store(opened())


@pytest.fixture
def now() -> Iterator[Clock]:
    with clock(1000.0) as standing:
        yield standing


def test_a_publisher_does_not_read_what_others_wrote(journal: WatchedJournal, other: Store):
    store = Store(journal)
    for number in range(20):
        publish(other, f"other-{number}")
        claim(other)
        assert publish(store, str(number)) == [True]
    assert store.commit([Configure(5)]) == [True]
    assert journal.fed == 0
    assert all(batch.is_blind for batch in journal.batches)
    assert len(held(other)) == 40


def test_a_repeated_publish_returns_true_and_stores_once(journal: WatchedJournal, other: Store):
    store = Store(journal)
    assert publish(store, "a") == publish(store, "a") == [True]
    assert publish(other, "b") == publish(store, "b") == [True]
    assert claim(other) == ["a"]
    other.commit([Ack("a")])
    assert publish(store, "a") == [True]
    assert waiting(other) == ["b"]


def test_a_consumer_is_told_what_was_stored_before(journal: WatchedJournal, other: Store):
    store = Store(journal)
    publish(other, "a")
    store.look()
    assert publish(store, "a") == [False]


@pytest.mark.parametrize("use", [Store.look, Store.is_due, claim, lambda store: store.commit([Sweep()])])
def test_a_reader_follows_for_a_while_then_publishes_blindly(
    use: Callable[[Store], object], journal: WatchedJournal, other: Store, now: Clock
):
    store = Store(journal)
    use(store)
    journal.batches.clear()
    publish(store, "a")
    now.now += FOLLOWING_SECONDS
    publish(store, "b")
    assert [batch.is_blind for batch in journal.batches] == [False, False]
    now.now += 0.1
    publish(store, "c")
    assert [batch.is_blind for batch in journal.batches] == [False, False, True]
    publish(other, "d")
    assert waiting(store) == ["a", "b", "c", "d"]


def test_publishing_does_not_prolong_the_reading(journal: WatchedJournal, now: Clock):
    store = Store(journal)
    store.look()
    for _ in range(4):
        now.now += 2
        publish(store, str(now.now))
    assert [batch.is_blind for batch in journal.batches] == [False, False, True, True]


def test_a_publish_beside_a_claim_is_not_blind(journal: WatchedJournal, other: Store):
    publish(other, "a")
    store = Store(journal)
    stored, [entry] = store.commit([message("a"), Take(5)])
    assert (stored, store.payload(entry)) == (False, b"a")


def test_a_claim_on_an_empty_queue_writes_nothing(journal: WatchedJournal, other: Store, now: Clock):
    store = Store(journal)
    assert claim(store) == []
    assert store.commit([Take(3)]) == [[]]
    assert claim(other) == []
    publish(other, "a", "b")
    assert claim(other, 5) == ["a", "b"]
    assert claim(store) == []
    assert journal.batches == []
    now.now += 60
    assert claim(store, 2) == ["a", "b"]
    assert len(journal.batches) == 1


def test_a_claim_of_an_entrypoint_that_has_nothing_writes_nothing(journal: WatchedJournal, other: Store):
    publish(other, "a")
    store = Store(journal)
    assert store.commit([Take(3, "unknown")]) == [[]]
    assert journal.batches == []


def test_a_store_is_due_when_a_claim_would_find_one(opened: Callable[[], WatchedJournal], other: Store, now: Clock):
    store = Store(opened())
    assert not store.is_due()
    publish(other, "a")
    assert store.is_due()
    claim(other, seconds=60)
    assert not store.is_due()
    now.now += 60
    assert store.is_due()


def test_a_store_that_was_closed_is_opened_again_when_it_is_used(opened: Callable[[], WatchedJournal]):
    store = Store(opened())
    publish(store, "a")
    store.close()
    publish(store, "b")
    store.close()
    assert waiting(store) == ["a", "b"]
    store.close()
    store.close()
    assert held(store) == {"a": b"a", "b": b"b"}
