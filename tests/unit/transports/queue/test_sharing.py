"""Threads that come together share a batch, and a failing command fails alone."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.queue import pending_commit
from ami.transports.objectstore.queue import store as store_module
from ami.transports.objectstore.queue.commands import Ack, Claim, Enqueue, Purge
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import CASConflictError, JobNotFoundError, StorageError
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.place import until
from tests.support.transports.queue_state import picture
from tests.support.transports.small_stores import claim, held, message, on_objects, publish
from tests.support.transports.watched_journal import WatchedJournal

SECONDS = 30


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def journal(objects: MemoryObjects) -> WatchedJournal:
    return WatchedJournal(ObjectJournal(objects, "queue/"))


@pytest.fixture
def store(journal: WatchedJournal) -> Store:
    return Store(journal)


@contextmanager
def together(
    store: Store,
    journal: WatchedJournal,
    calls: list[Callable[[], object]],
    meet: Callable[[object], object] = lambda batch: None,
):
    """Let a first batch wait in the journal until all the calls wait for the next one; give their futures.

    ``meet`` is what the next batches meet before they are appended.
    """
    first, all_wait = threading.Event(), threading.Event()

    def stop(_):
        first.set()
        assert all_wait.wait(SECONDS)

    journal.before = stop
    with ThreadPoolExecutor(len(calls) + 1) as pool:
        leading = pool.submit(publish, store, "first")
        assert first.wait(SECONDS)
        journal.before = meet
        futures: list[Future[object]] = [pool.submit(call) for call in calls]
        until(lambda: len(store._pending) == len(calls) + 1, SECONDS, "all wait")
        all_wait.set()
        assert leading.result(SECONDS) == [True]
        yield futures


def test_fifty_threads_share_one_batch_and_get_their_own_answers(store: Store, journal: WatchedJournal):
    calls = [lambda name=str(number): store.commit([message(name), Ack(name), Ack("no")]) for number in range(50)]
    with together(store, journal, calls) as futures:
        for future in futures:
            stored, acknowledged, missing = future.result(SECONDS)
            assert (stored, acknowledged) == (True, None)
            assert isinstance(missing, JobNotFoundError)
    assert [len(batch.lines) for batch in journal.batches] == [1, 150]
    assert held(store) == {"first": b"first"}


def test_a_batch_is_durable_when_one_of_its_commits_is(store: Store, journal: WatchedJournal):
    calls = [lambda: publish(store, "a", durable=False), lambda: publish(store, "b", durable=True)]
    with together(store, journal, calls):
        pass
    publish(store, "c", durable=False)
    assert [batch.durable for batch in journal.batches] == [True, True, False]


def test_large_commits_do_not_make_a_batch_that_is_too_large(
    store: Store, journal: WatchedJournal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store_module, "BATCH_BYTES", 10_000)
    calls = [lambda name=str(number): publish(store, name, size=4000) for number in range(7)]
    calls.append(lambda: publish(store, "huge", size=50_000))
    with together(store, journal, calls) as futures:
        assert [future.result(SECONDS) for future in futures] == [[True]] * 8
    assert all(batch.size < 10_500 for batch in journal.batches if len(batch.lines) > 1)
    assert len(journal.batches) < 8
    assert len(held(store)) == 9


def test_a_commit_larger_than_any_batch_fails_alone(
    store: Store, journal: WatchedJournal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pending_commit, "COMMIT_BYTES", 10_000)
    with pytest.raises(ValueError, match="up to 10000 fit"):
        publish(store, "huge", size=10_000)
    assert publish(store, "small") == [True]
    assert held(store) == {"small": b"small"}


def test_a_command_that_cannot_be_written_fails_alone(store: Store, journal: WatchedJournal):
    calls = [lambda: publish(store, "a"), lambda: store.commit([message("b"), Enqueue("c", b"", priority="high")])]
    first = publish(store, "zero")
    with pytest.raises(TypeError, match="Enqueue.priority cannot be 'high'"):
        calls[1]()
    assert first == calls[0]() == [True]
    assert held(on_objects(store._journal._storage)).keys() == {"zero", "a"}


def test_any_id_may_share_a_batch(store: Store, journal: WatchedJournal):
    strange = "\ud800 \0 \n \"'"
    with together(store, journal, [lambda: publish(store, "a"), lambda: store.commit([Enqueue(strange, b"1")])]):
        pass
    assert len(journal.batches) == 2
    assert held(store) == {"first": b"first", "a": b"a", strange: b"1"}


def test_a_storage_failure_reaches_all_who_share_the_batch(store: Store, journal: WatchedJournal):
    def fail(_):
        journal.before = lambda batch: None
        raise StorageError("the storage is not well")

    calls = [lambda name=str(number): publish(store, name) for number in range(5)]
    with together(store, journal, calls, fail) as futures:
        for future in futures:
            with pytest.raises(StorageError, match="not well"):
                future.result(SECONDS)
    assert publish(store, "next") == [True]
    assert held(store).keys() == {"first", "next"}


def test_what_the_system_raises_is_told_as_a_storage_error(store: Store, journal: WatchedJournal):
    def fail(_):
        raise OSError(28, "No space left on device")

    journal.before = fail
    with pytest.raises(StorageError, match="No space left") as raised:
        publish(store, "a")
    assert isinstance(raised.value.cause, OSError)


def test_too_many_faster_writers_are_a_conflict(store: Store, journal: WatchedJournal):
    def fail(_):
        raise CASConflictError("they were faster")

    journal.before = fail
    with pytest.raises(CASConflictError):
        publish(store, "a")


class Interrupted(BaseException):
    """What a time limit raises anywhere."""


def interrupt(*_: object) -> None:
    raise Interrupted


def test_who_is_interrupted_does_not_interrupt_the_others_of_its_batch(store: Store, journal: WatchedJournal):
    calls = [lambda name=str(number): publish(store, name) for number in range(3)]
    with together(store, journal, calls, interrupt) as futures:
        errors = [type(future.exception(SECONDS)) for future in futures]
    assert sorted(error.__name__ for error in errors) == ["Interrupted", "StorageError", "StorageError"]
    journal.before = lambda batch: None
    assert publish(store, "next") == [True]
    assert held(store).keys() == {"first", "next"}


def test_an_interrupted_commit_leaves_the_state_of_the_journal(
    store: Store, journal: WatchedJournal, objects: MemoryObjects
):
    publish(store, *"abc")
    claim(store)
    journal.after = interrupt
    with pytest.raises(Interrupted):
        claim(store)
    journal.after = lambda batch: None
    assert claim(store) == ["c"]
    assert picture(store.look()) == picture(on_objects(objects).look())


@pytest.mark.parametrize("use", [Store.look, claim, held])
def test_a_reader_that_is_interrupted_anywhere_reads_nothing_twice(
    use: Callable[[Store], object], objects: MemoryObjects
):
    other = on_objects(objects)
    publish(other, *map(str, range(20)))
    for _ in range(5):
        claim(other, 2)
    for stop_at in range(1, 7):
        journal = WatchedJournal(ObjectJournal(objects, "queue/"))
        store = Store(journal)
        left = iter(range(stop_at - 1))
        journal.feeding = lambda left=left: next(left, None) is None and interrupt()
        with pytest.raises(Interrupted):
            use(store)
        journal.feeding = lambda: None
        assert picture(store.look()) == picture(on_objects(objects).look())


def test_a_purge_and_a_claim_may_share_a_batch_with_publishes(store: Store, journal: WatchedJournal):
    with together(store, journal, [lambda: store.commit([message("a"), Purge(), message("b"), Claim(5, "x")])]) as [
        one
    ]:
        _, count, _, entries = one.result(SECONDS)
    assert count == 2
    assert [store.payload(entry) for entry in entries] == [b"b"]


def test_no_commands_are_no_batch(store: Store, journal: WatchedJournal):
    assert store.commit([]) == []
    assert journal.batches == []
