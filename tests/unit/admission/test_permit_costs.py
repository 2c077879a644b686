"""A run may take more than one permit: never more at once than there are, and none waits for ever."""

import threading
from typing import Any

import pytest
from celery import current_app
from django.db import connection, connections, transaction

from ami.admission import keys, leases, picks, runs, waiting_calls
from ami.admission.models import Call, Run
from ami.admission.permits import PermitBook
from ami.admission.policies import Permits, PolicyRefused, policy_of
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def send() -> list[int]:
    """Pick what may be sent; return what each costs."""
    leases.acquire([QUEUE], "me")
    return [each.call.permit_cost for each in picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)]


def call(*sizes: int, key: str = "a", project: int = 0) -> None:
    for size in sizes:
        admitted.weighty.delay(key=key, size=size, project=project)


def end_one(**fields: Any) -> None:
    run = Run.objects.filter(**fields).order_by("sent_at", "call").first()
    assert run is not None
    begun = runs.begin(admitted.weighty, run.pk, "delivery")
    assert begun is not None
    assert runs.end(admitted.weighty, begun, None)


def test_runs_take_no_more_permits_than_there_are_in_the_order_of_their_calls():
    call(2, 1, 2, 1)
    call(4, key="b")
    assert sorted(send()) == [1, 2, 4]
    [lane] = [each for each in waiting_calls.staged(current_app) if each.waiting]
    assert lane.why == "for a permit: 3 of 4 are held"
    assert send() == []
    end_one(permit_cost=2)
    assert sorted(send()) == [1, 2]
    assert not Call.objects.filter(run=None).exists()


def test_call_that_costs_all_is_not_passed_by_small_ones_of_another_project():
    call(1, 1, project=1)
    assert send() == [1, 1]
    call(4, project=2)
    call(1, 1, 1, 1, project=1)
    end_one()
    assert send() == [], "project 2 has used least, and its call waits for the others' permits"
    end_one()
    assert send() == [4]


def test_call_that_costs_more_than_there_are_takes_all():
    call(9, 1)
    assert send() == [9]
    end_one()
    assert send() == [1]


@pytest.mark.parametrize("size", [0, -1, True, "2", None, 1.5, 10**7])
def test_cost_that_is_no_number_is_refused_at_the_call(size: Any):
    with pytest.raises(keys.ArgumentRefused, match="'size' = .*whole number"):
        admitted.weighty.delay(key="a", size=size)


@pytest.mark.parametrize("cost", [0, -1, "", 1.5, None])
def test_cost_that_cannot_be_one_is_refused_where_it_is_written(cost: Any):
    with pytest.raises(PolicyRefused, match="cost"):
        Permits(2, cost=cost)


@pytest.mark.django_db(transaction=True)
def test_two_dispatchers_never_count_one_keys_permits_at_the_same_time():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time, which locks no rows")
    call(3)
    locked, is_over = threading.Event(), threading.Event()

    def other() -> None:
        """What another queue's dispatcher does in its transaction."""
        with transaction.atomic():
            book = PermitBook({admitted.weighty.name: policy_of(admitted.weighty)}, 0.0)
            assert book._locked(Call.objects.get().permit_key).is_locked
            locked.set()
            is_over.wait(10)
        connections.close_all()

    thread = threading.Thread(target=other)
    thread.start()
    assert locked.wait(10)
    assert send() == []
    is_over.set()
    thread.join()
    assert send() == [3]
