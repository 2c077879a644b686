"""What workers report as totals is added to the histograms once, whoever counts, and also when a worker has ended."""

import pytest

from ami.celery import task_times
from ami.queues import ended_workers
from ami.queues.models import EndedWorker
from ami.telemetry import totals
from ami.telemetry.models import TaskHistogram, TaskTotal

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def told(started, succeeded=0):
    counts = [0] * task_times.LENGTH
    counts[task_times.STARTED], counts[task_times.SUCCEEDED] = started, succeeded
    counts[task_times.WAITS + 3] = started
    return {"antenna": {"a.task": counts}}


def write(by_worker, *, holds=True, is_new=True):
    return totals.write(by_worker, is_new=is_new, holds=lambda: holds)


def started():
    return sum(row.started for row in TaskHistogram.objects.all())


def test_totals_are_counted_once():
    assert write({"one": told(5)})
    assert write({"one": told(5)})
    assert write({"one": told(7, 2), "two": told(1)})
    assert started() == 8
    assert TaskTotal.objects.get().counts[: task_times.FAILED] == [8, 2]
    assert sum(row.waits[3] for row in TaskHistogram.objects.all()) == 8


def test_process_that_takes_over_counts_from_there():
    write({"one": told(5)})
    write({"one": told(9)})  # By another process: nothing is kept in memory.
    assert started() == 9


def test_worker_that_ended_is_counted_to_its_end():
    write({"one": told(5)})
    ended_workers.keep("one", told(8))
    ended_workers.keep("never seen", told(2))
    write({"one": told(6)}, is_new=False)
    write({"two": told(1)})
    assert started() == 11
    assert not EndedWorker.objects.exists()


def test_who_has_lost_the_lease_writes_nothing():
    assert not write({"one": told(5)}, holds=False)
    assert started() == 0


def test_nothing_new_is_two_statements(django_assert_num_queries):
    write({"one": told(5)})
    with django_assert_num_queries(3):  # With the savepoint of the test's transaction.
        write({"one": told(5)}, is_new=False)


def test_totals_with_other_buckets_are_left_out():
    assert write({"old": {"antenna": {"a.task": [1, 2, 3]}}})
    assert started() == 0


def test_totals_of_one_worker_that_cannot_be_counted_hold_up_no_other(caplog):
    ended_workers.keep("ended", told("five"))
    assert write({"one": told(5), "odd": told(None), "two": told(2)})
    assert write({"one": told(6), "odd": told(None), "two": told(2)})
    assert started() == 8
    assert {vars(each)["worker"] for each in caplog.records if "refuses" in each.message} == {"odd", "ended"}
