"""A redelivered copy of a job's task takes the job over; what the first run still writes is refused."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from ami.celery import connection_names, leases
from ami.jobs.errors import JobStopped
from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services import job_slice, operations
from ami.jobs.tasks import run_job
from ami.queues import named_leases
from ami.queues.models import Lease
from tests.support.product.job_setup import Now, new_world

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    world = new_world()
    return world.running(world.captures(2))


def test_late_commit_of_a_run_whose_message_was_redelivered_is_refused(job: Job):
    assert job_slice.claim(job, "the message")
    copy = Job.objects.get(pk=job.pk)
    assert job_slice.claim(copy, "the message")
    copy.save_progress(cursor={"after": 2000}, done=2)

    with pytest.raises(JobStopped):
        job.save_progress(cursor={"after": 1000}, done=1)
    job.refresh_from_db()
    assert not job_slice.release(job)
    found = Job.objects.get(pk=job.pk)
    assert (found.cursor, found.done, found.holder) == ({"after": 2000}, 2, copy.holder)


class Superseded:
    """A run whose message is redelivered while it advances: a copy claims the job, then the run does ``then``."""

    def __init__(self, job: Job, then: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch) -> None:
        self.copy = Job.objects.get(pk=job.pk)
        self._then = then
        monkeypatch.setattr(job_slice, "_advance", self._advance)

    def _advance(self, job: Job, work: object) -> bool:  # noqa: ARG002
        assert job_slice.claim(self.copy, "the message")
        self._then(job)
        return True

    def holds(self) -> bool:
        return Job.objects.get(pk=self.copy.pk).holder == self.copy.held_as


def save(job: Job) -> None:
    job.save_progress(done=1)


def cancel(job: Job) -> None:
    operations.cancel(Job.objects.get(pk=job.pk))
    job.save_progress(done=1)


def fail(job: Job) -> None:
    raise ValueError("broken")


def test_superseded_run_leaves_the_lease_of_the_new_one(job: Job, monkeypatch: pytest.MonkeyPatch):
    later = Superseded(job, save, monkeypatch)
    assert job_slice.run_slice(job, "the message", Now()) is job_slice.Next.NOTHING
    assert later.holds()
    later.copy.save_progress(done=2)


def test_superseded_run_does_not_end_a_cancelled_job_that_another_runs(job: Job, monkeypatch: pytest.MonkeyPatch):
    later = Superseded(job, cancel, monkeypatch)
    assert job_slice.run_slice(job, "the message", Now()) is job_slice.Next.NOTHING
    assert later.holds()
    assert Job.objects.get(pk=job.pk).status == JobStatus.CANCELING


def test_error_of_a_superseded_run_neither_retries_nor_fails_the_job(job: Job, monkeypatch: pytest.MonkeyPatch):
    later = Superseded(job, fail, monkeypatch)
    for tries in (0, 3):
        Job.objects.filter(pk=job.pk).update(tries=tries, holder="", until=None)
        run_job.apply(kwargs={"job_id": job.pk}, task_id="the message", throw=True)
        assert later.holds()
        found = Job.objects.get(pk=job.pk)
        assert (found.status, found.tries) == (JobStatus.STARTED, tries)


def test_run_that_is_superseded_after_its_release_neither_retries_nor_fails_the_job(job: Job):
    copy = Job.objects.get(pk=job.pk)
    assert job_slice.claim(copy, "the message")
    assert not job_slice.fail(job, "broken")
    found = Job.objects.get(pk=job.pk)
    assert (found.status, found.holder) == (JobStatus.STARTED, copy.held_as)


def test_another_message_does_not_take_a_live_lease(job: Job):
    assert job_slice.claim(job, "the message")
    assert not job_slice.claim(Job.objects.get(pk=job.pk), "another message")


@pytest.mark.parametrize("wrong", [timedelta(days=-1), timedelta(days=1)])
def test_wrong_clock_of_a_process_neither_takes_nor_loses_a_lease(job: Job, monkeypatch, wrong: timedelta):
    copy = Job.objects.get(pk=job.pk)
    assert job_slice.claim(job, "the message")
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + wrong)
    assert not job_slice.claim(copy, "another message")
    job.save_progress(done=1)
    monkeypatch.undo()
    assert not job_slice.claim(copy, "another message")
    assert job_slice.release(job)


def test_leases_of_a_dead_worker_are_released_and_no_others(job: Job, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_names, "_incarnation", "ingest@a#123456789abc")
    assert job_slice.claim(job, "the message")
    owner = leases.new_holder()
    assert named_leases.take("work", owner, 60)
    monkeypatch.setattr(connection_names, "_incarnation", "ingest@b#cba987654321")
    assert named_leases.take("other work", leases.new_holder(), 60)

    job_slice.release_of_dead("ingest@a#123456789abc")
    named_leases.release_of_dead("ingest@a#123456789abc")
    assert job_slice.claim(Job.objects.get(pk=job.pk), "another message")
    assert not named_leases.renew("work", owner)
    assert Lease.objects.get(name="other work").until > timezone.now()


def test_no_worker_has_no_leases_to_release(job: Job):
    assert job_slice.claim(job, "the message")
    job_slice.release_of_dead("")
    assert Job.objects.get(pk=job.pk).holder
