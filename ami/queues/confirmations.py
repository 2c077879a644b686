"""Waits until every live worker has confirmed that no task can begin any more."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models.functions import Now

from ami.queues.models import Worker

#: A worker whose last beat is older by the database's clock is not waited for.
STALE = timedelta(seconds=20)
#: A worker reads a wish within 10 s without being woken, and confirms with its next beat at the latest.
WAIT_SECONDS = 25.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Confirmed:
    """Nodes that have confirmed, live ones that have not, and those whose beat is stale.

    ``left`` are the queues from which no worker takes tasks now.
    """

    confirmed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """Say which queues are left without a worker; empty without one."""
        return f"No other worker takes tasks of {', '.join(self.left)}: they wait until one does." if self.left else ""


def wait(
    reached: Callable[[Worker], bool], is_done: Callable[[Worker], bool], seconds: float = WAIT_SECONDS
) -> Confirmed:
    """Wait until ``is_done`` holds for every live worker that the operation has ``reached``; return who it does for."""
    deadline = time.monotonic() + seconds
    while True:
        found = _look(reached, is_done)
        if not found.missing or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_SECONDS)


def _look(reached: Callable[[Worker], bool], is_done: Callable[[Worker], bool]) -> Confirmed:
    fresh = set(Worker.objects.filter(seen_at__gte=Now() - STALE).values_list("node", flat=True))
    rows = [row for row in Worker.objects.order_by("node") if reached(row)]
    return Confirmed(
        confirmed=tuple(row.node for row in rows if row.node in fresh and is_done(row)),
        missing=tuple(row.node for row in rows if row.node in fresh and not is_done(row)),
        stale=tuple(row.node for row in rows if row.node not in fresh),
    )
