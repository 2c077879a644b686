"""Looks for dead workers, in whatever process holds the deployment's lease, and takes back what they held."""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery.utils.log import get_logger
from django.db import Error
from django.db.models import QuerySet
from django.db.models.functions import Now

from ami.celery import outages
from ami.celery.thread_database import short_connection
from ami.queues import broker_errors, named_leases, task_rows
from ami.queues.management_api import ManagementUnavailable
from ami.queues.models import Worker
from ami.queues.rescue import backends, connections, gone, processes, webhook
from ami.queues.rescue.frozen_writer import FrozenWriter
from ami.queues.rescue.verdict import CLOSED, STALE_SECONDS, Facts, Verdict, decide, is_suspect
from ami.queues.signals import worker_changed

logger = get_logger(__name__)

NAME, LEASE_SECONDS = "sweep", 10.0
LOOK_SECONDS = 3.0
#: Who does not hold the lease tries so often. A worker tries only when its beat tells that somebody is not well.
TRY_SECONDS = 10.0
PING_SECONDS = 2.0
#: At so many looks in a row a worker must have been silent.
SILENT_LOOKS = 2
#: Connections are closed again: a new one is listed after about three seconds.
RESCUES, AGAIN_SECONDS = 3, 10.0
#: A worker that another process has found dead so long ago needs nothing any more.
OVER = timedelta(seconds=60)
KEPT = timedelta(days=1)


@dataclass
class Rescue:
    """What was done so far for one start of a worker with one verdict."""

    times: int = 0
    next_at: float = 0.0
    is_told: bool = False


class Sweep:
    """Implements `ami.celery.worker_records.Sweeper`; one per process, used by one thread.

    It decides only after its own contact with the database has lasted as long as a beat may be late: after an outage
    every row is stale.
    """

    def __init__(self) -> None:
        self._next = 0.0
        self._contact_since: float | None = None
        self._silent: dict[tuple[str, datetime], int] = {}
        self._rescues: dict[tuple[str, Verdict], Rescue] = {}
        self._writer = FrozenWriter()
        self._is_checked = self._is_busy = False

    def turn(self, app: Any, name: str, *, is_needed: bool = True) -> None:
        now = time.monotonic()
        if now < self._next or not (is_needed or self._is_busy):
            return
        self._next = now + TRY_SECONDS
        try:
            with short_connection():
                if not named_leases.take(NAME, name, LEASE_SECONDS):
                    self._is_busy = False
                    self.database_answered(answered=True)
                    return
                rows = list(Worker.objects.annotate(now=Now()))
        except Error as error:
            self.database_answered(answered=False)
            self._next = now + LOOK_SECONDS
            outages.complain("Dead workers not looked for", error)
            with short_connection():
                self._writer.write_failed(now)
            return
        self._next = now + LOOK_SECONDS
        self.database_answered(answered=True)
        self._check_reach(app)
        self._is_busy = any(is_unwell(row) for row in rows)
        if self._contact_since is not None and now - self._contact_since >= STALE_SECONDS:
            self._look(app, rows)

    def _check_reach(self, app: Any) -> None:
        """Log once, when this process begins to sweep, that a dead worker's connections could not be closed."""
        if self._is_checked:
            return
        self._is_checked = True
        if why := connections.why_unreachable(app):
            logger.warning("A dead worker's messages return by RabbitMQ's heartbeats alone, within 45 s: %s", why)

    def database_answered(self, answered: bool) -> None:
        if not answered:
            self._contact_since = None
            return
        self._contact_since = time.monotonic() if self._contact_since is None else self._contact_since
        self._writer.write_succeeded()

    def _look(self, app: Any, rows: list[Any]) -> None:
        self._ping(app, [row for row in rows if is_suspect(facts_of(row)) and row.verdict != Verdict.DEAD])
        for row in rows:
            try:
                self._look_after(app, row)
            except Error as error:
                logger.warning("Worker not looked after: %s", error, extra={"worker": row.node})
        self._forget_old(rows)

    def _ping(self, app: Any, suspects: list[Any]) -> None:
        """Count for each suspect the looks at which it was silent since its last beat."""
        answering = ping(app, [row.node for row in suspects]) if suspects else set()
        if answering is None:
            self._silent = {_beat_of(row): 0 for row in suspects}
            return
        silent = {_beat_of(row): self._silent.get(_beat_of(row), 0) + 1 for row in suspects}
        self._silent = {beat: looks for beat, looks in silent.items() if beat[0] not in answering}

    def _answers(self, row: Any) -> bool | None:
        if row.verdict == Verdict.DEAD:
            return False
        looks = self._silent.get(_beat_of(row))
        return True if looks is None else False if looks >= SILENT_LOOKS else None

    def _look_after(self, app: Any, row: Any) -> None:
        found = decide(facts_of(row, self._answers(row)))
        if found in CLOSED and self._is_due(row, found):
            if found is Verdict.DEAD and not _is_as_read(row):
                return
            self._take_back(app, row, found)
        self._flag(row, found)

    def _is_due(self, row: Any, found: Verdict) -> bool:
        if row.verdict == Verdict.DEAD and row.flagged_at and row.now - row.flagged_at > OVER:
            return False
        done = self._rescues.setdefault((row.connection_name, found), Rescue(is_told=row.verdict == found))
        return done.times < RESCUES and time.monotonic() >= done.next_at

    def _take_back(self, app: Any, row: Worker, found: Verdict) -> None:
        """End what is left of the worker and return what it held."""
        done = self._rescues[row.connection_name, found]
        done.times, done.next_at = done.times + 1, time.monotonic() + AGAIN_SECONDS
        how = [f"{processes.end(row)} processes ended", _release(row)] if found is Verdict.DEAD else []
        how.insert(0, _close_connections(app, row))
        if not done.is_told:
            done.is_told = True
            _tell(row, found, ", ".join(how))

    def _flag(self, row: Worker, found: Verdict) -> None:
        if found in (row.verdict, Verdict.UNKNOWN):
            return
        for verdict in CLOSED - {found}:
            self._rescues.pop((row.connection_name, verdict), None)
        if found in (Verdict.WEDGED, Verdict.DATABASE_AWAY):
            logger.error("Worker %s: %s", found, row.node, extra={"worker": row.node})
        with short_connection():
            same: QuerySet[Worker] = Worker.objects.filter(node=row.node, connection_name=row.connection_name)
            if found is Verdict.DEAD:
                same = same.filter(seen_at__lte=row.seen_at)  # A beat meanwhile: it is not dead.
            same.update(verdict=str(found), flagged_at=Now() if found else None)
            worker_changed.send_robust(type(self))

    def _forget_old(self, rows: list[Any]) -> None:
        names = {row.connection_name for row in rows}
        self._rescues = {key: done for key, done in self._rescues.items() if key[0] in names}
        with short_connection():
            Worker.objects.filter(seen_at__lt=Now() - KEPT).delete()
            task_rows.end_silent()


def _close_connections(app: Any, row: Worker) -> str:
    try:
        return f"{connections.take_back(app, row)} connections closed"
    except ManagementUnavailable as error:
        return f"connections not closed, RabbitMQ does so within 45 s: {error}"
    except broker_errors.kinds() as error:
        return f"connections not closed: {error}"


def _release(row: Worker) -> str:
    """End the worker's transactions, then its leases, which one of them may have locked."""
    try:
        with short_connection():
            terminated = backends.terminate(row.database_name)
            gone.worker_gone(row.connection_name)
    except Error as error:
        return f"database connections not ended: {_line(error)}"
    return f"{terminated} database connections ended"


def _tell(row: Worker, found: Verdict, how: str) -> None:
    sentence = f"DEAD WORKER {row.node}" if found is Verdict.DEAD else f"Worker cut off: {row.node}"
    reach = "" if found is not Verdict.DEAD or processes.can_reach(row) else "; its processes are on another host"
    fields = {"worker": row.node, "host": row.host, "pid": row.pid}
    logger.error("%s", f"{sentence}: {how}{reach}", extra=fields)
    webhook.send(f"{sentence}: {how}{reach}", fields | {"verdict": str(found)})


def _beat_of(row: Any) -> tuple[str, datetime]:
    return row.node, row.seen_at


def _is_as_read(row: Worker) -> bool:
    """Whether the worker has not beaten since its row was read, nor another start of it."""
    same = Worker.objects.filter(node=row.node, connection_name=row.connection_name, seen_at__lte=row.seen_at)
    with short_connection():
        return bool(same.exists())


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def is_unwell(row: Any) -> bool:
    """Whether a look at the worker would change something, now or soon."""
    facts = facts_of(row)
    if is_suspect(facts) and row.verdict != Verdict.DEAD:
        return True
    found = decide(facts)
    return row.verdict != Verdict.DEAD if found is Verdict.UNKNOWN else found is not Verdict.WELL or bool(row.verdict)


def facts_of(row: Any, answers: bool | None = None) -> Facts:
    """Return the facts in a row that is annotated with the database's time as ``now``."""
    allowance = row.loop_allowance_seconds
    return Facts(
        beat_age_seconds=(row.now - row.seen_at).total_seconds(),
        is_connected=row.is_connected,
        loop_age_seconds=row.loop_age_seconds,
        loop_allowance_seconds=allowance,
        frame_age_seconds=row.frame_age_seconds,
        answers=answers,
        is_running=processes.is_running(row) if allowance and answers is False else None,
    )


def ping(app: Any, nodes: list[str]) -> set[str] | None:
    """Return which of the nodes answer; None where the broker cannot be asked."""
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=PING_SECONDS)
            replies = app.control.ping(destination=nodes, timeout=PING_SECONDS, connection=connection)
    except broker_errors.kinds() as error:
        logger.warning("Workers not pinged: %s", error)
        return None
    return {node for reply in replies or () for node in reply}


#: This process's, which `config` connects.
SWEEPER = Sweep()
