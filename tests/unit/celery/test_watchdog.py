"""The watchdog: what counts as standing still, and what does not. A real beat that freezes: tests/acceptance."""

import threading

import pytest

from ami.celery import watchdog
from ami.celery.beat_variables import BeatVariables
from ami.celery.watchdog import Watchdog
from ami.environment.errors import EnvironmentRefused
from ami.environment.reader import read

SECONDS = 60


class Looks:
    """In place of the wait between two looks: the watchdog looks when the test lets it, and no time passes."""

    def __init__(self) -> None:
        self._allowed, self._waits, self.stopped = threading.Semaphore(0), threading.Semaphore(0), False

    def wait(self, _: float) -> bool:
        self._waits.release()
        assert self._allowed.acquire(timeout=SECONDS)
        return self.stopped

    def let(self, count: int) -> None:
        """Let it look so often, each time when it waits to."""
        for _ in range(count):
            assert self._waits.acquire(timeout=SECONDS)
            self._allowed.release()

    def set(self) -> None:
        self.stopped = True
        self._allowed.release()


@pytest.fixture
def guarded():
    """A watchdog of ten looks, the event that it sets instead of ending the process, and its looks."""
    ended, looks = threading.Event(), Looks()
    dog = Watchdog(10, end=ended.set)
    dog._stopped = looks
    dog.start()
    yield dog, ended, looks
    dog.stop()


def has_looked(looks: Looks) -> None:
    """Wait until its last look is over: it waits for the next one."""
    assert looks._waits.acquire(timeout=SECONDS)
    looks._waits.release()


def test_silence_ends_the_process_with_one_line(monkeypatch, caplog):
    monkeypatch.setattr(watchdog, "CHECK_SECONDS", 0.02)
    ended = threading.Event()
    Watchdog(1, end=ended.set).start()
    assert ended.wait(SECONDS)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(lines) == 1
    assert lines[0].startswith("No tick has finished for 1 s; frozen at ")
    assert "threading.py" in lines[0]


def test_signs_of_life_keep_it_quiet(guarded):
    dog, ended, looks = guarded
    for _ in range(30):
        looks.let(9)
        has_looked(looks)
        dog.alive()
    assert not ended.is_set()
    looks.let(10)
    assert ended.wait(SECONDS)


def test_announced_rest_is_added_to_the_patience(guarded):
    dog, ended, looks = guarded
    dog.alive(rest_seconds=60)
    looks.let(69)
    has_looked(looks)
    assert not ended.is_set()
    dog.alive(rest_seconds=-5)
    looks.let(9)
    has_looked(looks)
    assert not ended.is_set()
    looks.let(1)
    assert ended.wait(SECONDS)


def test_log_that_hangs_does_not_keep_it(guarded, monkeypatch):
    _, ended, looks = guarded
    monkeypatch.setattr(watchdog, "LOG_SECONDS", 0.05)
    released = threading.Event()
    monkeypatch.setattr(watchdog.logger, "critical", lambda *_: released.wait(SECONDS))
    looks.let(10)
    assert ended.wait(SECONDS / 2)
    released.set()


def test_patience_of_nothing_never_looks():
    before = threading.active_count()
    Watchdog(0).start()
    assert threading.active_count() == before


PATIENCE = "ANTENNA_BEAT_PATIENCE_SECONDS"


@pytest.mark.parametrize(("raw", "seconds"), [("", 300), ("0", 0), ("12", 12), (" 12 ", 12), ("86400", 86400)])
def test_patience_is_a_whole_number_of_seconds(raw: str, seconds: int):
    assert read(BeatVariables, {PATIENCE: raw}).antenna_beat_patience_seconds == seconds


@pytest.mark.parametrize("raw", ["-1", "1.5", "five", "86401", "²"])
def test_invalid_patience_is_refused(raw: str):
    with pytest.raises(EnvironmentRefused, match=f"{PATIENCE} is '{raw}'; it must be a whole number from 0"):
        read(BeatVariables, {PATIENCE: raw})
