"""Beats in the test's own process: real schedulers on one database, a broker in memory, and what they publish."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from celery.signals import after_task_publish

from ami.celery.scheduler import Scheduler
from config import celery_app
from tests.support.place import celery_at


@dataclass(frozen=True)
class Published:
    """One message of beat: the name of its entry, and the task id."""

    entry: str
    task_id: str


@contextmanager
def publishes() -> Iterator[list[Published]]:
    """Publish to a broker in memory, and collect what is published there."""
    collected: list[Published] = []

    def collect(headers: dict[str, Any] | None = None, **_: Any) -> None:
        if headers:
            collected.append(Published(headers["periodic_task_name"], headers["id"]))

    with celery_at("memory://"):
        after_task_publish.connect(collect)
        try:
            yield collected
        finally:
            after_task_publish.disconnect(collect)


def new_beat(kind: type[Scheduler] = Scheduler, **options: Any) -> Any:
    """Return a scheduler as a beat has it; its last words at the end of this process are left out."""
    scheduler: Any = kind(app=celery_app, **options)
    scheduler._finalize.cancel()
    scheduler._watchdog.stop()
    scheduler._sweep.stop()
    return scheduler


def run_due(scheduler: Any) -> None:
    """Tick until nothing is due any more."""
    while scheduler.tick() <= 0:
        pass
