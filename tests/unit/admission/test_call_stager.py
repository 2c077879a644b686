"""A call of a task with a policy is one row of the caller's transaction, by whatever way it is published."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from celery import chain, current_app, group
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.admission import leases, picks, run_publisher
from ami.admission.call_stager import CannotStage, DuplicateCall
from ami.admission.models import Call, Run
from ami.celery import bulk_publisher
from ami.celery.message_collector import MessageCollector
from ami.celery.staged_calls import RUN_HEADER, dispatching
from ami.queues import admission_facts
from ami.queues.models import DesiredState, Worker
from ami.queues.publish import publish_many, publish_task, signature
from ami.topology.router import ORIGIN_HEADER
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted, basic

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
NAME = admitted.sent.name


def calls() -> list[str]:
    return list(Call.objects.order_by("pk").values_list("arguments", flat=True))


@pytest.mark.parametrize(
    "publish",
    [
        lambda app: admitted.sent.delay(1),
        lambda app: admitted.sent.apply_async((1,), queue=QUEUE),
        lambda app: admitted.sent.delay_on_commit(1),
        lambda app: app.send_task(NAME, (1,)),
        lambda app: publish_task(admitted.sent, 1),
        lambda app: publish_many([signature(NAME, 1)]),
        lambda app: bulk_publisher.publish_many(app, [admitted.sent.s(1)]),
        lambda app: group([admitted.sent.s(1)]).apply_async(),
    ],
)
def test_every_way_to_publish_appends_a_row_at_once(app: Any, sent: list[dict[str, Any]], publish: Any):
    publish(app)
    assert calls() == ["[[1], {}]"]
    assert not sent


def test_call_is_one_statement_and_other_tasks_cost_none(app: Any, sent: list[dict[str, Any]]):
    with CaptureQueriesContext(connection) as one:
        admitted.sent.delay(1)
    assert [query["sql"].split()[0] for query in one.captured_queries] == ["INSERT"]
    with CaptureQueriesContext(connection) as none:
        basic.succeed.delay()
        publish_task(basic.succeed)
    assert not none.captured_queries
    assert sent


def test_row_keeps_what_the_message_is_published_with(app: Any):
    admitted.sent.apply_async((1,), countdown=30, expires=90, priority=7, headers={"mine": 1, ORIGIN_HEADER: "person"})
    row = Call.objects.get()
    assert row.not_before
    assert row.expires
    assert 25 < (row.not_before - timezone.now()).total_seconds() < 31
    assert 55 < (row.expires - row.not_before).total_seconds() < 65
    made = run_publisher.signature(app, picks.Outgoing("run", row))
    collector = MessageCollector(app.connection_for_write())
    with dispatching():
        made.apply_async(producer=collector)
    (message,) = collector.take()
    headers, priority = message.options["headers"], message.options["priority"]
    assert (headers["id"], headers["mine"], headers[ORIGIN_HEADER], headers[RUN_HEADER]) == (
        row.task_id,
        1,
        "person",
        "run",
    )
    assert (headers["retries"], priority) == (0, 7)


def test_same_task_id_is_one_call(app: Any):
    for _ in range(2):
        admitted.sent.apply_async((1,), task_id="same")
    assert Call.objects.count() == 1


def test_unknown_arguments_and_queues_are_refused_at_the_call(app: Any):
    with pytest.raises(TypeError):
        app.send_task(NAME, kwargs={"nmber": 1})
    with pytest.raises(LookupError):
        admitted.sent.apply_async((1,), queue="antena")
    assert not Call.objects.exists()


def test_duplicate_is_told_and_raised_where_the_task_says_so(app: Any, monkeypatch: pytest.MonkeyPatch):
    first = admitted.dropped.delay(key="a", wish=1)
    second = admitted.dropped.delay(key="a", wish=2)
    other = admitted.dropped.delay(key="b", wish=3)
    assert (first.was_duplicate, second.was_duplicate, other.was_duplicate) == (False, True, False)
    assert second.id == first.id
    monkeypatch.setattr(admitted.dropped, "unique", type(admitted.dropped.unique)(by=("key",), on_conflict="raise"))
    with pytest.raises(DuplicateCall, match='"a"'):
        admitted.dropped.delay(key="a", wish=4)


def test_unique_call_with_a_follower_is_refused(app: Any):
    with pytest.raises(CannotStage, match="link"):
        admitted.once.apply_async(kwargs={"key": "a", "wish": 1}, link=basic.succeed.si())
    with pytest.raises(CannotStage, match="chain"):
        chain(admitted.once.si("a", 1), basic.succeed.si()).apply_async()


def test_rolled_back_call_is_gone(app: Any):
    with transaction.atomic():
        admitted.sent.delay(1)
        transaction.set_rollback(True)
    assert not Call.objects.exists()


def test_expired_and_delayed_calls_are_not_sent(app: Any):
    admitted.sent.apply_async((1,), countdown=60)
    admitted.sent.apply_async((2,), expires=timezone.now() - timedelta(seconds=1))
    admitted.sent.delay(3)
    leases.acquire([QUEUE], "me")
    assert [each.call.arguments for each in picks.pick(picks.staged_tasks(app), QUEUE, "me", 9)] == ["[[3], {}]"]
    assert calls() == ["[[1], {}]", "[[3], {}]"]


def test_fair_keys_are_picked_in_turn_and_the_window_is_kept(app: Any):
    for number in range(20):
        admitted.fair.delay(key="many", number=number)
    admitted.fair.delay(key="one", number=99)
    leases.acquire([QUEUE], "me")
    with CaptureQueriesContext(connection) as queries:
        picked = picks.pick(picks.staged_tasks(app), QUEUE, "me", 6)
    assert len(queries) <= 24, "statements do not grow with the calls"
    assert [each.call.fair_key for each in picked].index('key="one"') <= 1
    assert len(picked) == Run.objects.count() == 6
    assert not picks.pick(picks.staged_tasks(app), QUEUE, "me", 6)


def test_disabled_task_does_not_hold_up_others(app: Any):
    for number in range(5):
        admitted.sent.delay(number)
    admitted.once.delay("a", 1)
    leases.acquire([QUEUE], "me")
    allowed = {name: policy for name, policy in picks.staged_tasks(app).items() if name != NAME}
    assert [each.call.task for each in picks.pick(allowed, QUEUE, "me", 9)] == [admitted.once.name]


def test_staged_calls_are_listed_with_what_they_wait_for(app: Any):
    for number in range(5):
        admitted.limited.delay(key="a", number=number)
    admitted.sent.apply_async((1,), countdown=60)
    leases.acquire([QUEUE], "me")
    picks.pick(picks.staged_tasks(app), QUEUE, "me", 9)
    out = io.StringIO()
    call_command("queues", "staged", "--json", stdout=out)
    found = {row["task"]: row for row in json.loads(out.getvalue())}
    limited, sent = found[admitted.limited.name], found[NAME]
    assert (limited["waiting"], limited["sent"], limited["running"]) == (3, 2, 0)
    assert limited["why"] == "for a permit: 2 of 2 are held"
    assert (sent["waiting"], sent["later"], sent["why"]) == (1, 1, "until it is due")


def test_deployment_knows_places_and_what_is_held():
    moment = timezone.now()
    values = {"host": "h", "pid": 1, "started_at": moment, "seen_at": moment, "queues": [QUEUE], "concurrency": 3}
    Worker.objects.create(node="a", connection_name="a#1", **values)
    Worker.objects.create(node="b", connection_name="b#1", verdict="dead", **values)
    for kind, name, aspect in (("queue", "antenna-ingest", "paused"), ("task name", NAME, "disabled")):
        DesiredState.objects.create(kind=kind, name=name, aspect=aspect, value=1, since=moment)
    found = admission_facts.read()
    assert found.places == {QUEUE: 3}
    assert found.workers == {"a#1"}
    assert (found.paused_queues, found.disabled_tasks) == ({"antenna-ingest"}, {NAME})


def test_pick_does_not_read_all_waiting_calls_for_each(app: Any):
    """The dispatcher's statements have a second, and a table that grew fast has no statistics yet."""
    columns = (
        "task_id, task, queue, lane, key, key_text, permit_key, rate_key, fair_key, arguments, options, retries, "
        "starts, priority, part"
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "  # noqa: S608 - columns above
            f"INSERT INTO admission_call ({columns}) SELECT 'w-' || i, %s, %s, '', 'k-' || i, '', '', '', '', "
            "'[[1], {}]', '{}', 0, 0, 0, '' FROM n",
            [NAME, QUEUE],
        )
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL statement_timeout = '1s'")
    leases.acquire([QUEUE], "me")
    assert len(picks.pick(picks.staged_tasks(app), QUEUE, "me", 1000)) == picks.BATCH


def test_call_whose_argument_is_none_has_no_limit():
    for number in range(5):
        admitted.limited.delay(key=None, number=number)
    leases.acquire([QUEUE], "me")
    assert len(picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)) == 5
