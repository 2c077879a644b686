"""The live findings, looked for by one process for all, and what the snapshot itself shows to be wrong."""

import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from celery import current_app
from celery.utils.log import get_logger
from django.conf import settings
from django.db import connections

from ami.celery.thread_database import database_block
from ami.queues import diagnostics
from ami.queues.diagnostics.finding import OF_BROKER, Finding, gravest_first
from ami.telemetry import promise_findings, shared_values
from ami.telemetry.alerts import shown
from ami.telemetry.snapshots.shape import FindingFigures, Snapshot

logger = get_logger(__name__)

NAME = "findings"
FRESH_SECONDS = 20.0
_looking = threading.Lock()


def current(snapshot: Snapshot) -> tuple[tuple[FindingFigures, ...], float]:
    """Return the findings, the gravest first, and when they were looked for (epoch seconds); one statement.

    A look asks every worker and takes seconds: nobody waits for it but who finds that there never was one.
    """
    row = shared_values.last(NAME)
    if row is None:
        row = look()
    elif row.age_seconds > FRESH_SECONDS:
        _look_in_background()
    broken = [_figures(each) for each in promise_findings.broken(snapshot.queues)]  # Newer than those of the look.
    found = [each for each in _read(row) if each.name != "promise-broken" and not _is_over(each, snapshot)]
    found += broken
    if alerts := shown.firing():
        found = [replace(each, alert=alerts.get((each.name, each.target))) for each in found]
    return tuple(gravest_first(found)), snapshot.taken_at - row.age_seconds


def for_alerts(max_age_seconds: float) -> list[FindingFigures]:
    """Return what a look shows, those who watch may have made it just now; never raises for the broker."""
    with database_block():
        row = shared_values.last(NAME)
    if row is not None and row.age_seconds <= min(FRESH_SECONDS, max_age_seconds):
        return _read(row)
    return list(_look())


def _is_over(finding: FindingFigures, snapshot: Snapshot) -> bool:
    """Whether the snapshot, which is newer, shows that a queue or worker was released since the look."""
    if finding.name in OF_BROKER:
        return not snapshot.unseen
    if finding.name == "paused":
        return any(queue.queue == finding.target and queue.paused is None for queue in snapshot.queues)
    node = finding.sentence.partition(" ")[0]
    workers = snapshot.workers if finding.name == "parked" else ()
    return any(worker.node == node and worker.parked is None and worker.state != "parked" for worker in workers)


def look() -> shared_values.Shared:
    """Look now, unless another process does or has within `FRESH_SECONDS`."""
    return shared_values.current(NAME, FRESH_SECONDS, lambda _: [asdict(each) for each in _look()])


def _look_in_background() -> None:
    if _looking.acquire(blocking=False):
        threading.Thread(target=_run, name="findings", daemon=True).start()


def _run() -> None:
    try:
        look()
    except Exception:
        logger.exception("Findings not looked for")
    finally:
        connections.close_all()  # This thread's.
        _looking.release()


def _look() -> Iterator[FindingFigures]:
    url = settings.RABBITMQ_MANAGEMENT_URL
    found = diagnostics.findings(settings.ANTENNA_TOPOLOGY, current_app, url, _redis(), has_database=True)
    yield from map(_figures, found)


def _figures(found: Finding) -> FindingFigures:
    return FindingFigures(found.level, found.name, found.sentence, found.target)


def _read(row: shared_values.Shared) -> list[FindingFigures]:
    return [FindingFigures(**each) for each in row.value]


def _redis() -> Any:
    conf = current_app.conf
    if "redis" not in f"{settings.CACHES} {conf.result_backend} {conf.broker_url}":
        return ()
    from ami.queues.diagnostics import redis_servers  # It imports redis, which few processes need.

    return redis_servers.configured(settings.CACHES, conf.result_backend or "", conf.broker_url or "")
