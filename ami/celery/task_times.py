"""Counts in the worker's parent how long tasks waited and ran, and how they ended: totals since its start.

The pool's threads append one small event per start and end, and the reporter's thread adds them up: neither waits for
the other, and a pool of threads loses no count.
"""

import time
from bisect import bisect_left
from collections import deque
from typing import Any

from ami.celery.app import PUBLISHED_HEADER
from ami.celery.task_counts import queue_of

#: Upper bounds of the buckets, in seconds; one more bucket has no bound.
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
BUCKETS = len(BOUNDS) + 1
#: The places of a list of totals; behind them the buckets of the waits, then those of the runs.
STARTED, SUCCEEDED, FAILED, RETRIED, WAIT_SECONDS, RUN_SECONDS = range(6)
WAITS, RUNS = 6, 6 + BUCKETS
LENGTH = RUNS + BUCKETS
#: So many pairs of queue and task are told apart; more are counted as `OTHER`.
MOST, OTHER = 100, "other"
#: Events that wait for the thread; more are dropped, the oldest first.
MOST_EVENTS = 200_000

_events: deque[tuple[int, str | None, str, float]] = deque(maxlen=MOST_EVENTS)
_totals: dict[tuple[str, str], list[float]] = {}


def started(request: Any) -> None:
    """Note a start; called by the pool, with the request's ``time_start``."""
    due = (request.message.headers or {}).get(PUBLISHED_HEADER)
    waited = max(0.0, request.time_start - due) if isinstance(due, int | float) else -1.0
    _events.append((STARTED, request.delivery_info.get("routing_key"), request.name, waited))


def ended(request: Any, outcome: int, seconds: float | None = None) -> None:
    """Note the end of a task that began: ``outcome`` is SUCCEEDED, FAILED or RETRIED."""
    if not request.time_start:
        return
    ran = time.time() - request.time_start if seconds is None else seconds
    _events.append((outcome, request.delivery_info.get("routing_key"), request.name, max(0.0, ran)))


def fold() -> None:
    """Add up what was noted; called in the reporter's thread alone."""
    while _events:
        kind, routing_key, task, seconds = _events.popleft()
        totals = _of(queue_of({"routing_key": routing_key}), task)
        totals[kind] += 1
        if seconds < 0:
            continue  # A message of another publisher does not say when it was due.
        sums, buckets = (WAIT_SECONDS, WAITS) if kind == STARTED else (RUN_SECONDS, RUNS)
        totals[sums] += seconds
        totals[buckets + bisect_left(BOUNDS, seconds)] += 1


def totals() -> dict[str, dict[str, list[float]]]:
    """Return the totals of each queue and task since the process started; called in the reporter's thread alone."""
    fold()
    found: dict[str, dict[str, list[float]]] = {}
    for (queue, task), counts in _totals.items():
        told = list(counts)
        told[WAIT_SECONDS], told[RUN_SECONDS] = round(told[WAIT_SECONDS], 3), round(told[RUN_SECONDS], 3)
        found.setdefault(queue, {})[task] = told
    return found


def _of(queue: str, task: str) -> list[float]:
    found = _totals.get((queue, task))
    if found is None:
        key = (queue, task[:255]) if len(_totals) < MOST else (OTHER, OTHER)
        found = _totals.setdefault(key, [0] * LENGTH)
    return found
