"""One process keeps the time of a broker."""

import os
import time
from pathlib import Path

import pytest

from ami.transports.objectstore.broker import election as elections
from ami.transports.objectstore.broker.election import LockElection, RecordElection


def test_one_process_wins_a_folder_until_it_resigns(tmp_path: Path):
    first, second = (LockElection(tmp_path / "broker" / "lock") for _ in range(2))
    assert first.is_won()
    assert not second.is_won()
    assert first.is_won()
    first.resign()
    assert second.is_won()
    assert not first.is_won()
    second.resign()


def test_a_removed_folder_is_won_again(tmp_path: Path):
    first, second = (LockElection(tmp_path / "lock") for _ in range(2))
    assert first.is_won()
    (tmp_path / "lock").unlink()
    assert second.is_won()
    assert not first.is_won()
    second.resign()


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_process_that_was_stopped_for_long_is_replaced(tmp_path: Path):
    path = tmp_path / "lock"
    first, second, third = (LockElection(path) for _ in range(3))
    assert first.is_won()
    term = first.term()
    age(path, elections.STALE_SECONDS - 10)
    assert not second.is_won()
    age(path, elections.STALE_SECONDS + 10)
    assert second.is_won()
    assert not third.is_won()
    assert not first.is_won()
    assert second.is_won()
    assert os.listdir(tmp_path) == ["lock"]
    second.resign()
    assert first.term() is None
    assert first.is_won()
    assert first.term() not in (None, term)
    first.resign()


def test_a_process_that_works_is_not_replaced(tmp_path: Path):
    first, second = (LockElection(tmp_path / "lock") for _ in range(2))
    assert first.is_won()
    age(tmp_path / "lock", elections.STALE_SECONDS + 10)
    assert first.is_won()
    assert not second.is_won()
    first.resign()


def test_a_process_whose_record_has_ended_wins_a_bucket_only_after_it_read_them_again(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(elections.time, "monotonic", lambda: now[0])
    election = RecordElection()
    election.observe({"b"}, {"b"}, 60)
    now[0] += 59
    assert election.term() == 0
    election.observe({"b"}, {"b"}, 60)
    term = election.term()
    assert term is not None
    now[0] += 61
    assert not election.is_won()
    election.observe({"b"}, {"b"}, 60)
    assert election.term() not in (None, term)


@pytest.mark.parametrize(("alive", "wins"), [(set(), True), ({"b"}, True), ({"a", "b"}, False), ({"b", "c"}, True)])
def test_the_first_consumer_record_wins_a_bucket(alive, wins):
    election = RecordElection()
    election.observe({"b"}, alive, 60)
    assert election.is_won() is wins
