"""Fills RabbitMQ and PostgreSQL as a large deployment does."""

import itertools
import threading
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models.functions import Now

from ami.celery.staged_calls import dispatching
from ami.jobs.tasks import process_nats_pipeline_result
from ami.main.tasks import purge_old_rows
from ami.queues import publish
from ami.queues.models import AuditEntry, Beat, Letter, TaskFailure, Worker
from benchmarks import telemetry
from tests.support import console_rows

WORKERS, IMAGES = 20, 1000
#: One message in so many is another task's, for another queue.
OTHERS = 10
BEAT_SECONDS = 5.0
SPREAD = {
    AuditEntry: "UPDATE {} SET at = now() - id * interval '25 seconds'",
    Letter: "UPDATE {} SET collected_at = now() - id * interval '30 seconds'",
    TaskFailure: "UPDATE {} SET failed_at = now() - id * interval '15 seconds'",
}


@dataclass(frozen=True)
class Size:
    """How much of everything there is."""

    messages: int = 200_000
    letters: int = 10_000
    entries: int = 100_000
    days: int = 30

    def tenth(self) -> "Size":
        """Return the size of ``--quick``."""
        return Size(self.messages // 10, self.letters // 10, self.entries // 10, self.days // 10)


def fill(size: Size) -> int:
    """Write the rows, and publish the messages; return how many rows of samples and histograms there are."""
    samples = telemetry.seed(size.days)
    console_rows.seed(size.letters, size.entries, WORKERS, IMAGES)
    with connection.cursor() as cursor:
        for model, statement in SPREAD.items():
            cursor.execute(statement.format(model._meta.db_table))
    _publish(size.messages)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return samples


def _publish(count: int) -> None:
    def each(number: int) -> Any:
        if number % OTHERS == 0:
            return publish.signature(purge_old_rows)
        key = f"results/{number % 500}/{number:032x}.json"
        return publish.signature(process_nats_pipeline_result, job_id=number % 500, result_key=key, reply_subject="r")

    with dispatching():  # Messages, not rows.
        publish.publish_many(map(each, itertools.islice(itertools.count(), count)))


class Beats(threading.Thread):
    """Renews the beats of the workers and of beat, whose processes are not there."""

    def __init__(self) -> None:
        super().__init__(name="beats", daemon=True)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            Worker.objects.update(seen_at=Now())
            Beat.objects.update(seen_at=Now())
        connection.close()

    def end(self) -> None:
        self._ended.set()
        self.join()
