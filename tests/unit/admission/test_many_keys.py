"""Thousands of keys whose calls wait cost a due call nothing, whether they are due later or held by a limit."""

from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.admission import lanes, leases, picks, shares
from ami.admission.lanes import Cursor
from ami.admission.models import Bucket, Call, Run, Share
from tests.support.admission import QUEUE, many_calls
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

MANY = 2_500


def pick(room: int = 8, cursor: Cursor | None = None) -> list[str]:
    """Return the ids of the calls that are picked."""
    found = picks.pick(picks.staged_tasks(current_app), QUEUE, "me", room, cursor=cursor)
    return [each.call.task_id for each in found]


@pytest.fixture(autouse=True)
def lease() -> None:
    leases.acquire([QUEUE], "me")


def test_due_call_behind_delayed_keys_takes_twelve_statements():
    many_calls(admitted.fair, 10_000, not_before=timezone.now() + timedelta(hours=1), ready=False)
    due = admitted.fair.delay(key="now", number=1).id
    with CaptureQueriesContext(connection) as seen:
        assert pick() == [due]
    assert len(seen) <= 12, [each["sql"] for each in seen]


def test_calls_become_ready_some_at_a_time_the_earliest_first():
    now = timezone.now()
    many_calls(admitted.fair, lanes.MOST_READY + 5, not_before=now - timedelta(seconds=5), ready=False)
    first = admitted.fair.apply_async((), {"key": "first", "number": 1}, countdown=1).id
    Call.objects.filter(task_id=first).update(not_before=now - timedelta(minutes=1))
    picked = pick(3)
    assert first in picked or Call.objects.get(task_id=first).ready
    assert Call.objects.filter(ready=False).count() == 6
    pick(3)
    assert not Call.objects.filter(ready=False).exists()


def test_due_call_behind_keys_whose_rate_is_not_due_is_picked():
    many_calls(admitted.rare, MANY)
    later = timezone.now().timestamp() + 3600
    keys = Call.objects.values_list("rate_key", flat=True)
    Bucket.objects.bulk_create(Bucket(key=key, arrival=later) for key in keys)
    due = admitted.rare.delay(key="now", number=1).id
    cursor, picked = Cursor(), list[str]()
    with CaptureQueriesContext(connection) as seen:
        for _ in range(10):
            picked += pick(cursor=cursor)
            if not cursor.after:
                break
    assert picked == [due]
    assert len(seen) <= 60, "a few statements for a thousand lanes"


def test_due_call_behind_keys_whose_permits_are_held_is_picked():
    many_calls(admitted.limited, MANY)
    keys = Call.objects.values_list("permit_key", flat=True)
    held = {"call": 0, "task": admitted.limited.name, "queue": "another", "send_again_at": timezone.now()}
    Run.objects.bulk_create(
        Run(pk=f"{number}-{index}", permit_key=key, permit_number=number, **held)
        for index, key in enumerate(keys)
        for number in (1, 2)
    )
    due = admitted.limited.delay(key="now", number=1).id
    cursor = Cursor()
    with CaptureQueriesContext(connection) as seen:
        picked = [each for _ in range(10) for each in pick(cursor=cursor)]
    assert picked == [due]
    assert len(seen) <= 10 * 25


def test_urgent_call_is_picked_before_thousands_of_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lanes, "MOST_LANES", 50)
    many_calls(admitted.fair, 120)
    cursor = Cursor()
    assert len(pick(2, cursor)) == 2
    assert cursor.after
    urgent = admitted.fair.apply_async((), {"key": "urgent", "number": 1}, priority=5).id
    Run.objects.all().delete()
    assert pick(2, cursor)[0] == urgent


def test_cursor_sees_all_lanes_in_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lanes, "MOST_LANES", 50)
    many_calls(admitted.fair, 120)
    seen, cursor = list[str](), Cursor()
    for _ in range(3):
        seen += [lane.name for lane in lanes.Lanes(QUEUE, picks.staged_tasks(current_app)).read(cursor)]
    assert len(seen) == len(set(seen)) == 120
    assert not cursor.after


def test_lane_of_thousands_of_calls_of_one_stopped_key_lets_the_next_key_run():
    first = admitted.ordered.delay(key="a", number=0).id
    Call.objects.filter(task_id=first).update(stopped_at=timezone.now())
    pattern = Call.objects.filter(task_id=first).values().get() | {"stopped_at": None}
    del pattern["id"], pattern["task_id"]
    Call.objects.bulk_create((Call(task_id=f"n{number}", **pattern) for number in range(MANY)), batch_size=500)
    other = admitted.ordered.delay(key="b", number=1).id
    assert pick() == [other]


def test_many_calls_of_one_key_leave_room_to_other_keys():
    for number in range(30):
        admitted.once.delay(key="a", wish=number)
    others = [admitted.once.delay(key=key, wish=1).id for key in "bcd"]
    assert pick(4)[1:] == others


def test_work_and_rates_that_were_not_used_for_a_day_are_forgotten():
    now = timezone.now()
    for days, name in ((2, "old"), (0, "new")):
        Share.objects.create(queue=QUEUE, fair_key=name, used_at=now - timedelta(days=days))
        Bucket.objects.create(key=name, arrival=(now - timedelta(days=days)).timestamp())
    shares.forget()
    assert [each.fair_key for each in Share.objects.all()] == [each.key for each in Bucket.objects.all()] == ["new"]


@pytest.mark.parametrize("task", [admitted.fair, admitted.limited, admitted.ordered], ids=lambda each: each.name[-7:])
def test_pick_takes_as_many_statements_for_many_lanes_as_for_few(task: Any):
    counts = []
    for count in (10, 1000):
        Call.objects.all().delete()
        Run.objects.all().delete()
        many_calls(task, count)
        with CaptureQueriesContext(connection) as seen:
            assert pick(1)
        counts.append(len(seen))
    assert counts[1] <= counts[0]
