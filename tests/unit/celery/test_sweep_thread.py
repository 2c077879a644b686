"""One duty of a process never keeps the others from their turn."""

from typing import Any

import pytest

from ami.celery import sweep_thread, worker_records
from ami.celery.sweep_thread import SweepThread
from tests.support.place import until


class Duty:
    """Counts its turns; raises at each if it is to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.turns, self.error = 0, error

    def turn(self, *_: Any, **__: Any) -> None:
        self.turns += 1
        if self.error is not None:
            raise self.error

    def end(self, _: str) -> None: ...


def test_duty_that_raises_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweep_thread, "TURN_SECONDS", 0.01)
    sweeper, first, last = Duty(RecursionError()), Duty(UnicodeEncodeError("utf-8", "", 0, 1, "")), Duty()
    monkeypatch.setattr(worker_records, "_sweeper", sweeper)
    monkeypatch.setattr(worker_records, "_duties", (first, last))
    thread = SweepThread(None, "w@a")
    thread.start()
    try:
        until(lambda: last.turns >= 3, 10)
    finally:
        thread.stop()
    assert sweeper.turns >= 3
    assert first.turns >= 3
