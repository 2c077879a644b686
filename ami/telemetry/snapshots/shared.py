"""The snapshot that all who watch share, taken while somebody does."""

import threading
import time
from dataclasses import replace
from typing import Any, NamedTuple

from celery import current_app
from django.conf import settings

from ami.queues.rescue import processes
from ami.telemetry import findings, shared_values
from ami.telemetry.snapshots import live, schedule
from ami.telemetry.snapshots.shape import Snapshot, WorkerFigures, as_json, from_json

NAME = "snapshot"
#: A process asks the database at most so often.
MEMO_SECONDS = 0.5
#: While somebody watches, tasks that change outdate a snapshot that is older than this.
TASKS_SECONDS = 2.9


class _Memo(NamedTuple):
    """What a process has read: when by its monotonic clock, when it was taken by the same, and the snapshot."""

    read_at: float
    taken_at: float
    snapshot: Snapshot


_lock = threading.Lock()
_memo: _Memo | None = None


def current(max_age_seconds: float = 2.0) -> Snapshot:
    """Return a snapshot that is at most about so old; older only while another process takes the next.

    Raises:
        django.db.Error: the database did not answer.
    """
    global _memo
    if not _lock.acquire(blocking=_memo is None):
        return _memo.snapshot if _memo else current(max_age_seconds)
    try:
        if _memo and time.monotonic() - _memo.read_at < min(MEMO_SECONDS, max_age_seconds):
            return _memo.snapshot
        _memo = _read(_memo, max_age_seconds)
        if any(_has_ended(worker) for worker in _memo.snapshot.workers):
            outdate()
            _memo = _read(_memo, max_age_seconds)
        return _memo.snapshot
    finally:
        _lock.release()


def _read(memo: _Memo | None, max_age_seconds: float) -> _Memo:
    now, known = time.monotonic(), memo.snapshot if memo else None
    if memo and now - memo.taken_at <= max_age_seconds and shared_values.version(NAME) == memo.snapshot.version:
        return _Memo(now, memo.taken_at, memo.snapshot)
    found = shared_values.current(NAME, max_age_seconds, _take, known.version if known else 0)
    snapshot = known if known and found.value is None else from_json(found.value)
    now = time.monotonic()
    return _Memo(now, now - found.age_seconds, snapshot)


def _has_ended(worker: WorkerFigures) -> bool:
    # A worker that is killed outdates nothing itself.
    pid = worker.reachable_pid
    return pid is not None and worker.state != "dead" and processes.has_ended(pid)


def forget() -> None:
    """Let the next caller ask the database."""
    global _memo
    _memo = None
    schedule.forget()


def outdate(older_seconds: float = 0.0) -> None:
    """Let the next poll take a new snapshot, in every process, if this one is older; one statement."""
    shared_values.outdate(NAME, older_seconds)


def _take(version: int) -> dict[str, Any]:
    snapshot = live.take(current_app, settings.ANTENNA_TOPOLOGY, version)
    found, looked_at = findings.current(snapshot)
    return as_json(replace(snapshot, findings=found, findings_at=looked_at))
