"""The snapshot that all who watch share, taken while somebody does."""

import threading
import time
from dataclasses import replace
from typing import Any

from celery import current_app
from django.conf import settings

from ami.telemetry import findings, shared_values
from ami.telemetry.snapshots import live
from ami.telemetry.snapshots.shape import Snapshot, as_json, from_json

NAME = "snapshot"
#: A process asks the database at most so often.
MEMO_SECONDS = 0.5

_lock = threading.Lock()
_memo: tuple[float, Snapshot] | None = None


def current(max_age_seconds: float = 2.0) -> Snapshot:
    """Return a snapshot that is at most about so old; older only while another process takes the next.

    Raises:
        django.db.Error: the database did not answer.
    """
    global _memo
    if not _lock.acquire(blocking=_memo is None):
        return _memo[1] if _memo else current(max_age_seconds)
    try:
        if _memo and time.monotonic() - _memo[0] < min(MEMO_SECONDS, max_age_seconds):
            return _memo[1]
        snapshot = from_json(shared_values.current(NAME, max_age_seconds, _take).value)
        _memo = time.monotonic(), snapshot
        return snapshot
    finally:
        _lock.release()


def forget() -> None:
    """Let the next caller ask the database."""
    global _memo
    _memo = None


def _take(version: int) -> dict[str, Any]:
    snapshot = live.take(current_app, settings.ANTENNA_TOPOLOGY, version)
    found, looked_at = findings.current(snapshot)
    return as_json(replace(snapshot, findings=found, findings_at=looked_at))
