"""The live findings, looked for by one process for all, and what the snapshot itself shows to be wrong."""

import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from celery import current_app
from celery.utils.log import get_logger
from django.conf import settings
from django.db import connections

from ami.queues import broker_errors, diagnostics
from ami.queues.diagnostics.finding import Finding
from ami.telemetry import shared_values
from ami.telemetry.snapshots.promises import BROKEN
from ami.telemetry.snapshots.shape import FindingFigures, Snapshot

logger = get_logger(__name__)

NAME = "findings"
FRESH_SECONDS = 10.0
_looking = threading.Lock()
ORDER = {"error": 0, "warning": 1, "unseen": 2}


def current(snapshot: Snapshot) -> tuple[tuple[FindingFigures, ...], float]:
    """Return the findings, the gravest first, and when they were looked for (epoch seconds); one statement.

    A look asks every worker and takes seconds: nobody waits for it but who finds that there never was one.
    """
    row = shared_values.last(NAME)
    if row is None:
        row = look()
    elif row.age_seconds > FRESH_SECONDS:
        _look_in_background()
    found = [FindingFigures(**each) for each in row.value]
    found += _of_snapshot(snapshot)
    found.sort(key=lambda each: ORDER.get(each.level, 3))
    return tuple(found), snapshot.taken_at - row.age_seconds


def look() -> shared_values.Shared:
    """Look now, unless another process does or has within ten seconds."""
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
    try:
        found = diagnostics.findings(settings.ANTENNA_TOPOLOGY, current_app, settings.RABBITMQ_MANAGEMENT_URL, _redis())
    except broker_errors.kinds() as error:
        found = [Finding("error", "broker-unreachable", broker_errors.sentence(error))]
    for each in found:
        yield FindingFigures(each.level, each.name, each.sentence, _target(each.sentence))


def _redis() -> Any:
    from ami.queues.diagnostics import redis_servers  # It imports redis, which few processes need.

    conf = current_app.conf
    return redis_servers.configured(settings.CACHES, conf.result_backend or "", conf.broker_url or "")


def _target(sentence: str) -> str:
    """Return the queue that a sentence begins with, empty for another one."""
    first = sentence.partition(" ")[0]
    known: Any = settings.ANTENNA_TOPOLOGY.queues
    return first if first in known else ""


def _of_snapshot(snapshot: Snapshot) -> Iterator[FindingFigures]:
    for queue in snapshot.queues:
        if queue.promise == BROKEN and queue.paused is None:
            sentence = f"{queue.queue} does not keep its promise: {queue.promise_words}."
            yield FindingFigures("warning", "promise-broken", sentence, queue.queue)
