"""Queues that do not keep their promise, as findings of the live check."""

from collections.abc import Iterable, Iterator

from celery import current_app
from django.conf import settings

from ami.celery.thread_database import database_block
from ami.queues.diagnostics.finding import Finding
from ami.telemetry.broker_figures import link
from ami.telemetry.snapshots import live
from ami.telemetry.snapshots.promises import BROKEN
from ami.telemetry.snapshots.shape import QueueFigures


def findings() -> Iterator[Finding]:
    """Look at the broker and at the last five minutes; five statements."""
    seen = link.read(current_app, settings.ANTENNA_TOPOLOGY, letters=False, delayed=False)
    if seen.unseen:
        yield Finding("unseen", "source", f"promises were not looked at: {seen.unseen}.", "promises")
        return
    with database_block():
        queues = live.promised(settings.ANTENNA_TOPOLOGY, seen)
    yield from broken(queues)


def broken(queues: Iterable[QueueFigures]) -> Iterator[Finding]:
    """Yield the queues that break their promise without being paused."""
    for queue in queues:
        if queue.promise == BROKEN and queue.paused is None:
            sentence = f"{queue.queue} does not keep its promise: {queue.promise_words}."
            yield Finding("warning", "promise-broken", sentence, queue.queue)
