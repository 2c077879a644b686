"""One process keeps the time of a broker."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("alive", "wins"), [(set(), True), ({"b"}, True), ({"a", "b"}, False), ({"b", "c"}, True)])
def test_the_first_consumer_record_wins_a_bucket(alive, wins):
    election = RecordElection()
    election.observe({"b"}, alive)
    assert election.is_won() is wins
