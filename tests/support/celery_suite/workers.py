"""The workers of the suite, as tests address and ask them."""

from typing import Any

from celery import Celery

from tests.support.celery_suite.vendor import CeleryTestWorker

#: By queue.
Workers = dict[str, CeleryTestWorker]


def asked(app: Celery, workers: Workers) -> Any:
    """Return Celery's `inspect` of these workers, which returns when the last of them has answered."""
    return app.control.inspect([worker.hostname() for worker in workers.values()], timeout=15)


def stats(app: Celery, worker: CeleryTestWorker) -> dict[str, Any]:
    """Return what `inspect stats` tells of one worker."""
    node = worker.hostname()
    return dict(app.control.inspect([node], timeout=15).stats()[node])
