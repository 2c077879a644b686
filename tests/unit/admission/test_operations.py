"""What operators do to queues counts the calls that wait as rows."""

from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from ami.admission import leases, moves, picks, purges, waiting_calls
from ami.admission.models import Call, Run
from ami.queues import task_state, waiting_rows
from ami.telemetry.broker_figures import BrokerFigures, with_calls
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
NOW = 1_000_000.0


@pytest.fixture
def three() -> list[str]:
    """The ids of one call that was sent, one that waits for a permit, and one that is due later."""
    ids = [admitted.limited.delay(key="a", number=number).id for number in range(2)]
    sent, waiting = ids
    Call.objects.filter(task_id=waiting).update(permit_key="taken", lane="other", not_before=None)
    leases.acquire([QUEUE], "me")
    picks.pick({admitted.limited.name: picks.staged_tasks(current_app)[admitted.limited.name]}, QUEUE, "me", 1)
    later = admitted.sent.apply_async((3,), countdown=600).id
    return [sent, waiting, later]


def test_depth_counts_rows_that_are_due_and_says_which_are_not(three: list[str]):
    with CaptureQueriesContext(connection) as seen:
        found = waiting_calls.by_queue()
    assert len(seen) == 1
    assert (found[QUEUE].due, found[QUEUE].later) == (1, 1)
    figures = with_calls(BrokerFigures({QUEUE: 4, "other": 2}, delayed=1), NOW)
    assert figures.waiting == {QUEUE: 5, "other": 2}
    assert figures.delayed == 2
    away = BrokerFigures(unseen="away")
    assert with_calls(away, NOW) is away


def test_age_of_a_row_is_that_of_the_oldest_one(three: list[str]):
    Call.objects.filter(task_id=three[1]).update(created_at=Now() - timedelta(seconds=90))
    oldest = waiting_calls.by_queue()[QUEUE].oldest_at
    assert oldest is not None
    now = oldest.timestamp() + 90
    seen = BrokerFigures({QUEUE: 1}, oldest={QUEUE: 5.0}, tells_oldest=True)
    assert with_calls(seen, now).oldest == {QUEUE: 90.0}


def test_state_of_a_call_says_where_it_is(three: list[str]):
    states = [task_state.on_record(task) for task in three]
    assert all(state is not None and state.state == "pending" for state in states)
    sent, waiting, later = (state.detail for state in states if state is not None)
    assert sent == f"it was sent in {QUEUE}"
    assert waiting.startswith(f"a row of {QUEUE};")
    assert " until " in later
    Run.objects.update(state=Run.State.RUNNING)
    found: Any = task_state.on_record(three[0])
    assert found.detail == f"it runs in {QUEUE}"


def test_purge_deletes_what_waits_and_what_has_not_begun(three: list[str]):
    kept = admitted.limited.delay(key="b", number=9).id
    picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 9)
    Run.objects.filter(call=Call.objects.get(task_id=kept).pk).update(state=Run.State.RUNNING)
    assert purges.purge(QUEUE) == 1
    assert list(Call.objects.values_list("task_id", flat=True)) == [kept]
    assert Run.objects.count() == 1
    assert waiting_calls.count(QUEUE) == 0


def test_rows_are_seen_without_a_cost_and_moved(three: list[str]):
    other = "antenna-ingest"
    seen = waiting_rows.oldest(QUEUE, 20)
    assert [each.task_id for each in seen] == three[1:]
    assert seen[0].arguments == "() {'key': 'a', 'number': 1}"
    assert (seen[0].reason, seen[0].detail) == ("row", "a row")
    assert seen[1].detail.startswith("a row, due at ")
    assert moves.move(QUEUE, other, task=admitted.sent.name, headers={"antenna_origin": "beat"}) == 0
    assert moves.move(QUEUE, other, task=admitted.sent.name, headers={}) == 1
    assert Call.objects.get(queue=other).task_id == three[2]
    assert moves.move(QUEUE, other, headers={}, limit=5) == 1
    assert Call.objects.get(queue=QUEUE).task_id == three[0], "what was sent stays"
