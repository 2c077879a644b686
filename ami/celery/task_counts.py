"""Counts in the worker's parent how many tasks of each queue ended; its thread adds them up with each beat.

The loop alone writes the totals, and the thread alone what it has reported of them: neither waits for the other.
"""

from typing import Any

from ami.celery import storable

_totals: dict[str, list[int]] = {}
_reported: dict[str, tuple[int, int]] = {}


def queue_of(delivery_info: Any) -> str:
    """Return the queue that a message came from, by its routing key; a delayed one's ends with its name."""
    return storable.text((delivery_info or {}).get("routing_key") or "", None).rpartition(".")[2][: storable.LONGEST]


def note(delivery_info: Any, *, completed: bool) -> None:
    """Count one task; called in the worker's loop."""
    _totals.setdefault(queue_of(delivery_info), [0, 0])[0 if completed else 1] += 1


def unreported() -> dict[str, tuple[int, int]]:
    """Return (completed, failed) of each queue since the last `reported`; called in the thread."""
    found = {}
    for queue, (completed, failed) in tuple(_totals.items()):
        before = _reported.get(queue, (0, 0))
        if (completed, failed) != before:
            found[queue] = (completed - before[0], failed - before[1])
    return found


def reported(counts: dict[str, tuple[int, int]]) -> None:
    """Note that these counts are written down."""
    for queue, (completed, failed) in counts.items():
        before = _reported.get(queue, (0, 0))
        _reported[queue] = (before[0] + completed, before[1] + failed)
