"""Ends a process that a signal has stopped inside a transaction of SQLite: until then nobody can write anything."""

from celery.utils.log import get_logger
from django.db import Error, connection

from ami.queues.models import Worker
from ami.queues.rescue import processes

logger = get_logger(__name__)

#: Seconds for which writes must have failed before any process is ended.
PATIENCE_SECONDS = 10.0


class FrozenWriter:
    """Needs no write: in SQLite's write-ahead log the workers' rows can be read. One per sweep."""

    def __init__(self) -> None:
        self._failing_since: float | None = None
        self._stopped_before: set[tuple[int, int]] = set()

    def write_succeeded(self) -> None:
        self._failing_since = None
        self._stopped_before = set()

    def write_failed(self, now: float) -> None:
        """Note a failed write at ``now``, monotonic seconds; end who stands in the way after the patience.

        A process counts as frozen if a signal had stopped it at two looks in a row.
        """
        if connection.vendor != "sqlite":
            return
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since < PATIENCE_SECONDS:
            return
        try:
            rows = list(Worker.objects.all())
        except Error as error:
            logger.warning("Workers not read: %s", error)
            return
        stopped = {row.node: processes.stopped(row) for row in rows}
        for row in rows:
            if stopped[row.node] & self._stopped_before:
                count = processes.end(row)
                logger.error("FROZEN WORKER ended: it blocked the database; %d processes", count, extra=_fields(row))
        self._stopped_before = set().union(*stopped.values())


def _fields(row: Worker) -> dict[str, object]:
    return {"worker": row.node, "pid": row.pid}
