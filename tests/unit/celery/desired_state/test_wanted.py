"""What is wanted of a worker, from the wishes of several operators."""

import json
from pathlib import Path

import pytest

from ami.celery.desired_state.wanted import Identity, Wanted, wanted
from ami.celery.desired_state.wish_file import NAME, WishFile
from ami.celery.worker_records import Wish

ME = Identity("ingest@a", "a", "celeryworker_ingest", ("antenna-ingest", "antenna"))
NOW = 1000.0


def wish(kind: str, name: str, aspect: str, value: int = 1, since: float = 0.0, until: float | None = None) -> Wish:
    return Wish(kind, name, aspect, value, "ada", "why", since, until)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ([], Wanted()),
        ([wish("queue", "antenna", "paused")], Wanted(closed={"antenna": "paused by ada: why"})),
        ([wish("queue", "antenna", "paused", 0)], Wanted()),
        ([wish("queue", "antenna", "paused", until=NOW)], Wanted()),
        ([wish("queue", "antenna-interactive", "paused")], Wanted()),
        ([wish("node", "ingest@b", "parked")], Wanted()),
        ([wish("node", "ingest@a", "concurrency", 3)], Wanted(concurrency=3)),
        ([wish("node", "ingest@a", "concurrency", 0)], Wanted()),
        ([wish("host", "a", "restarted", 900)], Wanted(restarted=900.0)),
        ([wish("task", "x", "cancelled")], Wanted(cancelled=frozenset({"x"}))),
    ],
)
def test_wishes_that_reach_a_worker(wishes: list[Wish], expected: Wanted):
    assert wanted(wishes, ME, NOW) == expected


@pytest.mark.parametrize("aspect", ["parked", "stopped"])
def test_parked_worker_has_every_queue_closed(aspect: str):
    found = wanted([wish("host", "a", aspect)], ME, NOW)
    assert found.closed == dict.fromkeys(ME.queues, f"{aspect} by ada: why")
    assert (found.is_parked, found.is_stopped) == (True, aspect == "stopped")


@pytest.mark.parametrize("later", ["parked", "stopped"])
def test_latest_wish_counts_whatever_it_named(later: str):
    wishes = [wish("node", "ingest@a", "stopped", since=1), wish("service", ME.service, "parked", 0, since=2)]
    assert not wanted(wishes, ME, NOW).is_parked
    again = [*wishes, wish("host", "a", later, since=3)]
    assert wanted(again, ME, NOW).is_stopped == (later == "stopped")


def test_wish_that_is_over_gives_way_to_the_one_before():
    wishes = [wish("service", ME.service, "parked", since=1), wish("node", ME.node, "parked", 0, since=2, until=NOW)]
    assert wanted(wishes, ME, NOW).is_parked


def test_wishes_are_kept_over_a_restart(tmp_path: Path):
    wishes = (wish("queue", "antenna", "paused"), wish("node", "ingest@a", "concurrency", 3))
    WishFile(tmp_path / "ingest@a").write(wishes)
    assert WishFile(tmp_path / "ingest@a").read() == wishes


@pytest.mark.parametrize("content", ["", "{", "[1]", json.dumps([{"kind": "queue"}]), json.dumps([{"x": 1}])])
def test_damaged_file_is_no_wish(tmp_path: Path, content: str):
    (tmp_path / NAME).write_text(content)
    assert WishFile(tmp_path).read() == ()
    assert WishFile(None).read() == ()
