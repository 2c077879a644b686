"""The watchdog: what counts as standing still, and what does not. A real beat that freezes: tests/acceptance."""

import threading

import pytest

from ami.queues import watchdog
from ami.queues.watchdog import PATIENCE_VARIABLE, Watchdog, patience_seconds
from tests.support.place import until


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch):
    """A look every 20 ms; patience 1 is then 50 looks, a second as ever."""
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.02)


@pytest.fixture
def guarded():
    """A watchdog of one second, and the event that it sets instead of ending the process."""
    ended = threading.Event()
    dog = Watchdog(1, end=ended.set)
    dog.start()
    yield dog, ended
    dog.stop()


def test_silence_ends_the_process_with_one_line(guarded, caplog):
    _, ended = guarded
    assert ended.wait(5)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(lines) == 1
    assert lines[0].startswith("No tick has finished for 1 s; it stands still at ")
    assert "threading.py" in lines[0]


def test_signs_of_life_keep_it_quiet(guarded):
    dog, ended = guarded
    looks = 0

    def alive() -> bool:
        nonlocal looks
        looks += 1
        dog.alive()
        return looks >= 30

    until(alive, 10)
    assert not ended.is_set()


def test_announced_rest_is_added_to_the_patience(guarded):
    dog, ended = guarded
    dog.alive(rest_seconds=60)
    assert not ended.wait(1.5)
    dog.alive(rest_seconds=-5)
    assert ended.wait(5)


def test_log_that_hangs_does_not_keep_it(monkeypatch):
    monkeypatch.setattr(watchdog, "TELL_SECONDS", 0.05)
    monkeypatch.setattr(watchdog.logger, "critical", lambda *_: threading.Event().wait(5))
    ended = threading.Event()
    Watchdog(1, end=ended.set).start()
    assert ended.wait(4)


def test_patience_of_nothing_never_looks():
    before = threading.active_count()
    Watchdog(0).start()
    assert threading.active_count() == before


@pytest.mark.parametrize(("raw", "seconds"), [("", 300), ("0", 0), ("12", 12), (" 12 ", 12), ("86400", 86400)])
def test_patience_is_a_whole_number_of_seconds(monkeypatch, raw: str, seconds: int):
    monkeypatch.setenv(PATIENCE_VARIABLE, raw)
    assert patience_seconds() == seconds


@pytest.mark.parametrize("raw", ["-1", "1.5", "five", "86401", "²"])
def test_patience_that_is_no_such_number_stops_the_process(monkeypatch, raw: str):
    monkeypatch.setenv(PATIENCE_VARIABLE, raw)
    with pytest.raises(SystemExit, match=f"{PATIENCE_VARIABLE} is '{raw}'; it must be a whole number from 0"):
        patience_seconds()
