"""What an operation costs does not grow with what the queue holds."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.queue.commands import Ack, Claim, Renew, Sweep
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak
from tests.support.transports.request_counter import RequestCounter
from tests.support.transports.small_stores import POWER_FAILURE, message
from tests.support.transports.watched_journal import WatchedJournal

SHALLOW, DEEP = 100, soak(8_000, 200_000)
ROUNDS = 60


@contextmanager
def counted_lines() -> Iterator[Counter[str]]:
    """Count the lines of the package that are run, loops again for each time."""
    lines: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            lines[frame.f_code.co_name] += 1
        return trace if "objectstore" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def work(store: Store) -> None:
    """Publish, claim, renew and acknowledge, so that the queue is as deep as before."""
    for number in range(ROUNDS):
        store.commit([message(f"new-{number}", 700)])
        [[entry]] = store.commit([Claim(1, "worker", 60.0)], durable=False)
        assert len(store.payload(entry)) == 700
        store.commit([Renew(entry.id, "worker")], durable=False)
        store.commit([Ack(entry.id)], durable=False)


def filled(journal: Any, depth: int) -> WatchedJournal:
    watched = WatchedJournal(journal)
    store = Store(watched)
    for first in range(0, depth, 500):
        store.commit([message(str(number), 700) for number in range(first, min(first + 500, depth))], durable=False)
    watched.batches.clear()
    return watched


@pytest.fixture(params=["folder", "objects"])
def journal_of_depth(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[int], tuple[WatchedJournal, RequestCounter]]:
    def make(depth: int) -> tuple[WatchedJournal, RequestCounter]:
        counting = RequestCounter(MemoryObjects())
        if request.param == "folder":
            return filled(
                FolderJournal(tmp_path / str(depth), power_failure=POWER_FAILURE, durable=False), depth
            ), counting
        return filled(ObjectJournal(counting), depth), counting

    return make


def test_an_operation_costs_the_same_on_a_deep_queue(
    journal_of_depth: Callable[[int], tuple[WatchedJournal, RequestCounter]],
):
    costs = []
    for depth in (SHALLOW, DEEP):
        journal, counting = journal_of_depth(depth)
        store = Store(journal)
        # A snapshot that is due is not what an operation costs.
        store.look()
        store.commit([Sweep()])
        journal.batches.clear()
        read, traffic = journal.fed, counting.traffic
        with counted_lines() as lines:
            work(store)
        asked = counting.traffic.since(traffic)
        costs.append(
            {
                "batches": len(journal.batches),
                "bytes": sum(batch.size for batch in journal.batches),
                "batches read": journal.fed - read,
                "requests": asked.requests,
                "bytes sent": asked.bytes_sent,
                "bytes received": asked.bytes_received,
                "lines": sum(lines.values()),
            }
        )
    shallow, deep = costs
    assert deep["batches"] == shallow["batches"] == 4 * ROUNDS
    assert deep["batches read"] == shallow["batches read"] == 0
    for name in ("bytes", "requests", "bytes sent", "bytes received", "lines"):
        assert deep[name] <= 1.25 * shallow[name] + 200, (name, shallow, deep)
