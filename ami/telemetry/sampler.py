"""Takes a sample of every queue and worker, in whatever process holds the deployment's lease."""

import time
from datetime import UTC, datetime
from typing import Any

from celery.utils.log import get_logger
from django.conf import settings
from django.db import Error
from django.db.models.functions import Now

from ami.admission import waiting_calls
from ami.admission.waiting_calls import Waiting
from ami.celery import batch_writes, outages, task_times
from ami.celery.thread_database import short_connection
from ami.queues import named_leases
from ami.queues.models import Lease, Worker
from ami.telemetry import counts, rollups, totals
from ami.telemetry.alerts.evaluator import Evaluator
from ami.telemetry.broker_figures import BrokerFigures, BrokerLink, with_waiting
from ami.telemetry.counts import Totals
from ami.telemetry.models import Sample

logger = get_logger(__name__)

NAME, LEASE_SECONDS = "sampler", 40.0
TRY_SECONDS = 20.0
SAMPLE_SECONDS = 5.0
#: So often the workers' rows and the number of calls that wait as rows are read, samples are written, and what was
#: counted is written where it is new.
READ_SECONDS, WRITE_SECONDS, COUNT_SECONDS = 20.0, 30.0, 60.0


class Sampler:
    """Implements `ami.celery.worker_records.Duty`; one per process, used by one thread."""

    def __init__(self) -> None:
        self._link = BrokerLink()
        self._next = self._read_at = self._write_at = self._count_at = 0.0
        self._holds = False
        self._rows: list[Any] = []
        self._calls: dict[str, Waiting] = {}
        self._before: dict[str, Totals] | None = None
        self._written: dict[str, Totals] = {}
        self._samples: list[Sample] = []
        self._rollups = rollups.Rollups()
        self._alerts = Evaluator()

    def turn(self, app: Any, name: str) -> None:
        """Take and write what is due, while this process holds the lease."""
        now = time.monotonic()
        if self._holds:
            self._alerts.turn(name)
        if now < self._next:
            return
        self._next = now + SAMPLE_SECONDS
        try:
            if not self._holds and not self._take_over(name):
                self._next = now + TRY_SECONDS
                return
            self._sample(app, now)
            if now >= self._write_at:
                self._write_at = now + WRITE_SECONDS
                self._write(name)
        except Error as error:
            self._lose()
            outages.complain("No sample taken", error)

    def wake(self) -> None:
        """Nothing that operators ask for concerns the samples."""

    def end(self, name: str) -> None:
        """Write what is counted and give the lease up."""
        if self._holds:
            self._count_at = 0.0
            self._write(name)
            with short_connection():
                named_leases.release(NAME, name)
        self._link.close()

    def _take_over(self, name: str) -> bool:
        with short_connection():
            # One statement while another process has it.
            is_taken = Lease.objects.filter(name=NAME, until__gt=Now()).exclude(holder=name).exists()
            self._holds = not is_taken and named_leases.take(NAME, name, LEASE_SECONDS)
        return self._holds

    def _lose(self) -> None:
        self._holds = False
        self._samples, self._before, self._written = [], None, {}
        self._count_at = 0.0
        self._link.close()

    def _sample(self, app: Any, now: float) -> None:
        if now >= self._read_at:
            self._read_at = now + READ_SECONDS
            self._read_workers()
        told = self._link.read(app, settings.ANTENNA_TOPOLOGY, letters=False)
        seen = with_waiting(told, self._calls, time.time())
        if not seen.unseen:
            at = datetime.now(UTC)
            queues = [row.queue for row in settings.ANTENNA_TOPOLOGY.workloads]
            self._samples += [_of_queue(queue, at, seen, self._rows) for queue in queues]

    def _read_workers(self) -> None:
        """Read the workers' rows with how many calls wait as rows, and divide what the workers have counted since the
        last read among the samples since.
        """
        with short_connection():
            self._rows = list(Worker.objects.annotate(now=Now()))
            self._calls = waiting_calls.by_queue()
        for queue, new in self._new_counts().items():
            since = [each for each in self._samples if each.name == queue and each.started is None]
            since = [each for each in since if each.kind == Sample.Kind.QUEUE]
            for name, count in zip(("started", "ended", "failed"), new, strict=True):
                for place, each in enumerate(since):
                    setattr(each, name, count // len(since) + (place < count % len(since)))
        self._samples += [_of_worker(row) for row in self._rows if row.governor is not None]

    def _new_counts(self) -> dict[str, list[int]]:
        """Return what each queue has started, ended and failed since the last read."""
        found: dict[str, list[int]] = {row.queue: [0, 0, 0] for row in settings.ANTENNA_TOPOLOGY.workloads}
        now, before = {row.connection_name: row.totals or {} for row in self._rows}, self._before
        for name, told in now.items():
            for queue, _, delta in counts.new_counts(told, before.get(name) if before is not None else told):
                sums = found.setdefault(queue, [0, 0, 0])
                ended = sum(delta[task_times.SUCCEEDED : task_times.RETRIED + 1])
                for place, more in enumerate((delta[task_times.STARTED], ended, delta[task_times.FAILED])):
                    sums[place] += int(more)
        self._before = now
        return found

    def _write(self, name: str) -> None:
        with short_connection():
            if not self._count(name):
                self._lose()
                return
            # The others wait for what is counted of their time.
            done = [each for each in self._samples if each.kind == Sample.Kind.WORKER or each.started is not None]
            self._samples = [each for each in self._samples if each.kind == Sample.Kind.QUEUE and each.started is None]
            batch_writes.write(done, lambda some: Sample.objects.bulk_create(some, ignore_conflicts=True), _refused)
            self._rollups.turn()

    def _count(self, name: str) -> bool:
        """Renew the lease, and write what was counted if it is time; return False where another process has it."""
        if time.monotonic() < self._count_at:
            return named_leases.take(NAME, name, LEASE_SECONDS)
        told = {row.connection_name: row.totals for row in self._rows if row.totals}
        is_new = told != self._written
        if not totals.write(told, is_new=is_new, holds=lambda: named_leases.take(NAME, name, LEASE_SECONDS)):
            return False
        self._written, self._count_at = told, time.monotonic() + COUNT_SECONDS
        return True


def _refused(sample: Sample, error: Exception) -> None:
    logger.error("Sample not written, the database refuses it: %r", error, extra={"sample": sample.name})


def _of_worker(row: Any) -> Sample:
    governor = row.governor or {}
    return Sample(
        kind=Sample.Kind.WORKER,
        name=row.node,
        resolution=5,
        at=row.now,
        running=len(row.running),
        memory_used_bytes=governor.get("memory_used_bytes"),
        memory_limit_bytes=governor.get("memory_limit_bytes"),
        children=len(row.children),
        held=float(governor.get("state") == "held"),
        version=row.version,
    )


def _of_queue(queue: str, at: datetime, seen: BrokerFigures, rows: list[Any]) -> Sample:
    return Sample(
        kind=Sample.Kind.QUEUE,
        name=queue,
        resolution=5,
        at=at,
        waiting=seen.waiting.get(queue),
        delayed=None if seen.delayed_by_queue is None else seen.delayed_by_queue.get(queue, 0),
        running=sum(len(row.running) for row in rows if queue in row.queues),
        consumers=seen.consumers.get(queue),
    )


#: This process's, which `config` connects.
DUTY = Sampler()
