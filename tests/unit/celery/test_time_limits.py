"""The limits of a task and of a call: where one alone is named, the other moves in proportion."""

from types import SimpleNamespace
from typing import Any

import pytest

from ami.celery.time_limits import TimeLimits, of_call

#: Soft and hard limit of the worker.
WORKER = TimeLimits(240, 300)


def of_task(soft: float | None = None, hard: float | None = None) -> Any:
    return SimpleNamespace(soft_time_limit=soft, time_limit=hard)


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        # Given as a message has them: hard, soft.
        (of_task(), (None, None), (240, 300)),
        (of_task(), (2, None), (1.6, 2)),
        (of_task(), (240, None), (192, 240)),
        (of_task(), (250, None), (240, 250)),
        (of_task(), (None, 10), (10, 300)),
        (of_task(), (None, 300), (300, 375)),
        (of_task(), (None, 480), (480, 600)),
        (of_task(), (20, 10), (10, 20)),
        (of_task(), (10, 10), (10, 10)),
        (of_task(), (10, 20), (8, 10)),
        (of_task(hard=2), (2, None), (1.6, 2)),
        (of_task(hard=2), (1, None), (0.8, 1)),
        (of_task(soft=480), (None, 480), (480, 600)),
        (of_task(10, 20), (20, 10), (10, 20)),
        (of_task(10, 20), (2, 10), (1, 2)),
        (of_task(10, 20), (20, 30), (30, 60)),
        (of_task(10, 20), (None, None), (10, 20)),
    ],
)
def test_call_decides_before_its_task_and_that_before_its_worker(task: Any, given: Any, expected: Any):
    assert of_call(given, task, WORKER) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("worker", "given", "expected"),
    [
        (TimeLimits(None, None), (None, None), (None, None)),
        (TimeLimits(None, None), (2, None), (None, 2)),
        (TimeLimits(None, 300), (2, None), (None, 2)),
        (TimeLimits(240, None), (2, None), (2, 2)),
        (TimeLimits(240, 0), (None, 500), (500, 0)),
        (TimeLimits(0, 300), (None, 500), (500, 500)),
    ],
)
def test_worker_without_a_limit_adds_none(worker: TimeLimits, given: Any, expected: Any):
    assert of_call(given, of_task(), worker) == expected
