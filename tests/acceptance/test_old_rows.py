"""A tick of beat lets a worker of housekeeping delete what is old, in slices that make room for others."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from ami.queues.models import AuditEntry
from tests.support.place import Place, new_place, until

PURGE, BESIDE = "ami.main.tasks.purge_old_rows", "ami.jobs.tasks.audit_jobs"
HOUSEKEEPING, MANY = "antenna-housekeeping", 12_500


@pytest.fixture
def place(transactional_db) -> Iterator[Place]:
    with new_place("oldrows") as made:
        made.use_test_database()
        # On a worker of one slot a slice ends as soon as another message waits.
        made.environment |= {"ANTENNA_HOUSEKEEPING_CONCURRENCY": "1"}
        made.queues("declare")
        yield made


def test_worker_deletes_old_rows_until_none_is_left(place: Place) -> None:
    AuditEntry.objects.bulk_create(AuditEntry(who="ada", verb="pause") for _ in range(MANY))
    AuditEntry.objects.update(at=timezone.now() - timedelta(days=400))
    young = AuditEntry.objects.create(who="ada", verb="resume")
    place.send(PURGE, origin="beat")
    place.send(BESIDE, origin="beat")
    place.worker(HOUSEKEEPING)
    until(lambda: place.ran(BESIDE), 60, "the task beside it ran")
    until(lambda: AuditEntry.objects.count() == 1, 60, "old rows are deleted")
    assert AuditEntry.objects.get() == young
    until(lambda: place.ran(PURGE), 30, "the purge has ended")
    until(lambda: not place.depth(HOUSEKEEPING), 30, "nothing is left to do")
