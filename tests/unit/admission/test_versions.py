"""Two versions of one task beside each other: with a policy and without one, or with another one."""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import wraps
from typing import Any

import pytest
from celery import current_app
from celery.exceptions import Ignore, Retry
from django.db import Error, connection
from django.test.utils import CaptureQueriesContext

from ami.admission import dispatcher as module
from ami.admission import leases, picks, runs, waiting_calls
from ami.admission.dispatcher import Dispatcher
from ami.admission.models import Call, Run
from ami.admission.policies import GroupBy, InOrder, Unique
from ami.celery import disabled, staged_calls, staged_runs, worker_records
from ami.celery.app import AntennaCelery
from ami.celery.request import Request
from ami.celery.staged_calls import DELIVERY, RUN_HEADER, End, Note
from ami.queues import statistics
from ami.queues.letters import rows
from tests.support.admission import POLICIES, QUEUE, message
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

KEYED = {"key": "a", "number": 1}
#: Calls of tasks with each kind of policy.
CALLS: dict[str, dict[str, Any]] = {
    "sent": {"number": 1},
    "once": {"key": "a", "wish": 1},
    "replaced": {"key": "a", "wish": 1},
    "seldom": {"key": "a", "wish": 1},
    "weighty": {"key": "a", "size": 3},
    "limited": KEYED,
    "paced": {"number": 1},
    "fair": KEYED,
    "ordered": KEYED,
    "grouped": {"key": "a", "numbers": [1]},
}

Version = Callable[..., Any]


@pytest.fixture
def version(monkeypatch: pytest.MonkeyPatch) -> Version:
    """Give a task the policy of another version; without one, none."""

    def change(task: Any, **policy: Any) -> None:
        for name in POLICIES:
            monkeypatch.setattr(task, name, policy.get(name))

    return change


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("ami.admission.notifier.notify", lambda _: None)
    staged_calls.take_notes()
    yield
    staged_calls.take_notes()


def send() -> list[picks.Outgoing]:
    Call.objects.update(not_before=None, ready=True)
    leases.acquire([QUEUE], "me")
    return picks.pick(picks.staged_tasks(current_app), QUEUE, "me", 99)


def running(task: Any, sent: picks.Outgoing, monkeypatch: pytest.MonkeyPatch, does: Callable[..., Any]) -> Any:
    monkeypatch.setattr(task, "run", wraps(task.run)(does))
    with message(task, sent.run, id=sent.call.task_id):
        return staged_runs.run(task, (), {})


@pytest.mark.parametrize("name", CALLS)
def test_worker_of_the_version_before_begins_and_ends_a_run(
    name: str, version: Version, monkeypatch: pytest.MonkeyPatch
):
    task, ran = getattr(admitted, name), []
    task.delay(**CALLS[name])
    [sent] = send()
    version(task)
    running(task, sent, monkeypatch, lambda *_, **__: ran.append(1))
    assert (ran, Call.objects.count(), Run.objects.count()) == ([1], 0, 0)
    with pytest.raises(Ignore):
        running(task, sent, monkeypatch, lambda *_, **__: ran.append(2))
    assert ran == [1], "its message comes again, and the run has ended"


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_a_task_that_has_lost_its_policy_go_out(name: str, version: Version, monkeypatch: pytest.MonkeyPatch):
    task, ran = getattr(admitted, name), []
    for _ in range(2):
        task.delay(**CALLS[name])
    version(task)
    for _ in range(2):
        for sent in send():
            running(task, sent, monkeypatch, lambda *_, **__: ran.append(1))
    assert (len(ran), Call.objects.count(), Run.objects.count()) == (2, 0, 0)


@pytest.mark.parametrize(
    "policy",
    [
        {"unique": Unique(by=("number",))},
        {"group_by": GroupBy(("number",), 1, {"seconds": "last"})},
        {"in_order_by": InOrder(("number",))},
        {"fair_by": "number"},
    ],
)
def test_call_from_before_its_task_had_a_key_runs(
    policy: dict[str, Any], version: Version, monkeypatch: pytest.MonkeyPatch
):
    admitted.sent.delay(number=1)
    version(admitted.sent, **policy)
    [sent] = send()
    ran: list[Any] = []
    running(admitted.sent, sent, monkeypatch, lambda *_, **__: ran.append(1))
    assert (ran, Call.objects.count(), Run.objects.count()) == ([1], 0, 0)


def test_retry_in_the_version_before_changes_its_row(version: Version, monkeypatch: pytest.MonkeyPatch):
    call = admitted.once.delay(key="a", wish=1)
    [sent] = send()
    version(admitted.once)

    def fail(*_: Any, **__: Any) -> None:
        raise admitted.once.retry(countdown=5, exc=ValueError("again"))

    monkeypatch.setattr(
        "ami.celery.app.AntennaCelery._broker_kind", lambda _: pytest.fail("it is published, and its row stays")
    )
    monkeypatch.setattr(admitted.once, "run", fail)
    monkeypatch.setattr(AntennaCelery, "current_worker_task", admitted.once)
    with message(admitted.once, sent.run, id=call.id, args=[], kwargs={"key": "a", "wish": 1}), pytest.raises(Retry):
        staged_runs.run(admitted.once, (), {"key": "a", "wish": 1})
    waiting = Call.objects.get()
    assert (waiting.task_id, waiting.run, waiting.retries) == (call.id, None, 1)
    assert waiting.not_before is not None
    assert not Run.objects.exists()


def test_successor_in_the_version_before_is_the_same_call(version: Version, monkeypatch: pytest.MonkeyPatch):
    call = admitted.sliced.delay(key="a", steps=2)
    [sent] = send()
    version(admitted.sliced)
    task = admitted.sliced
    following = staged_calls.Next([], {"key": "a", "steps": 1}, 0, 0.0, {})
    running(task, sent, monkeypatch, lambda *_, **__: staged_runs.go_on(task, following))
    waiting = Call.objects.get()
    assert (waiting.task_id, json.loads(waiting.arguments)[1]["steps"]) == (call.id, 1)


@pytest.mark.parametrize("end", [End.FAILED, End.DISCARDED, End.RETURNED, End.DONE])
def test_end_that_a_parent_of_the_version_before_saw_is_written(end: End, version: Version):
    admitted.once.delay(key="a", wish=1)
    [sent] = send()
    version(admitted.once)
    begun = runs.begin(admitted.once, sent.run, "delivery", sent.call.task_id)
    assert begun is not None
    assert runs.settle(current_app, Note(sent.run, "delivery", end))
    assert (Call.objects.count(), Run.objects.count()) == (1 if end is End.RETURNED else 0, 0)


class Received(Request):
    """A request of `once` with these headers."""

    name, id, task = admitted.once.name, "id", admitted.once

    def __init__(self, headers: dict[str, Any]) -> None:
        self._request_dict = headers


def test_parent_of_the_version_before_notes_what_became_of_a_run(version: Version):
    version(admitted.once)
    request = Received({RUN_HEADER: "run", DELIVERY: "delivery"})
    request._settle(End.FAILED)
    request._settle(End.DONE)
    assert [(note.run, note.end) for note in staged_calls.take_notes()] == [("run", End.FAILED)]
    Received({})._settle(End.FAILED)
    assert not staged_calls.has_notes(), "a message without a run has no row"


def test_run_of_a_disabled_task_waits_in_the_version_before(version: Version, monkeypatch: pytest.MonkeyPatch):
    admitted.once.delay(key="a", wish=1)
    [sent] = send()
    version(admitted.once)

    class Records:
        def is_disabled(self, *_: Any) -> bool:
            return True

    monkeypatch.setattr(worker_records, "connected", Records)
    with message(admitted.once, sent.run, id=sent.call.task_id, **{disabled.MARK: {"jobs": ()}}), pytest.raises(Ignore):
        disabled.hold(admitted.once, (), {"key": "a", "wish": 1})
    assert Call.objects.get().run is None


def test_run_taken_from_the_version_before_ends_in_vain(version: Version, monkeypatch: pytest.MonkeyPatch):
    admitted.once.delay(key="a", wish=1)
    [sent] = send()
    version(admitted.once)

    def released(*_: Any, **__: Any) -> None:
        assert staged_runs.is_lost() is False
        Run.objects.all().delete()
        assert staged_runs.is_lost() is True

    monkeypatch.setattr("celery.current_task", admitted.once)
    with pytest.raises(Ignore):
        running(admitted.once, sent, monkeypatch, released)
    assert Call.objects.count() == 1


def test_stopped_call_stays_when_its_task_loses_its_order(version: Version):
    for number in range(2):
        admitted.ordered.delay(key="a", number=number)
    [sent] = send()
    assert runs.begin(admitted.ordered, sent.run, "delivery", sent.call.task_id)
    assert runs.settle(current_app, Note(sent.run, "delivery", End.FAILED))
    version(admitted.ordered)
    assert [each.call.arguments for each in send()] == ['[[], {"key": "a", "number": 1}]']
    assert send() == []


def test_replayed_letter_without_order_leaves_no_stopped_call(version: Version):
    from tests.support import dead_letters

    call = admitted.ordered.delay(key="a", number=0)
    Call.objects.update(stopped_at="2026-11-29T00:00Z")
    letter = dead_letters.letter(1)
    type(letter).objects.filter(pk=letter.pk).update(task_id=call.id, state=letter.State.REPLAYED)
    rows.done(letter.pk, call.id)
    assert not Call.objects.exists()


def test_message_takes_no_run_from_headers_that_are_handed_on(monkeypatch: pytest.MonkeyPatch):
    kind = current_app._broker_kind()
    headers = {RUN_HEADER: "run", DELIVERY: "delivery", "mine": 1}
    made = current_app._completed(kind, admitted.plain.name, {"headers": headers})
    assert made["headers"].get("mine") == 1
    assert not {RUN_HEADER, DELIVERY} & made["headers"].keys()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Whether a dispatcher of a version without any policy has started its thread at a time."""
    clock = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "short_connection", lambda **_: nullcontext())
    monkeypatch.setattr(module, "policy_of", lambda _: None)
    monkeypatch.setattr(module.connection_names, "incarnation", lambda: "worker#1")
    monkeypatch.setattr(Dispatcher, "_run", lambda _: None)
    made = Dispatcher()

    def turn(seconds: float = 1.0, *, woken: bool = False) -> bool:
        clock[0] += seconds
        if woken:
            made.wake()
        made.turn(current_app, "worker")
        return made._thread is not None

    return turn


def test_dispatcher_without_policies_asks_four_times_a_minute(started: Any):
    with CaptureQueriesContext(connection) as seen:
        assert not any(started() for _ in range(60))
    assert len(seen) <= 5
    admitted.sent.delay(1)
    assert any(started() for _ in range(16))


def test_dispatcher_without_policies_starts_when_it_is_woken_or_has_notes(started: Any):
    assert not started()
    admitted.sent.delay(1)
    assert not started()
    assert started(woken=True) or started() or started()
    Call.objects.all().delete()


def test_dispatcher_without_policies_starts_for_the_ends_it_has_seen(started: Any):
    assert not started()
    staged_calls.note(Note("run", "delivery", End.DONE))
    assert started()


def test_dispatcher_outlasts_a_database_that_is_away(started: Any, monkeypatch: pytest.MonkeyPatch):
    def away() -> bool:
        raise Error("away")

    monkeypatch.setattr(Call.objects, "exists", away)
    assert not any(started() for _ in range(40))


def test_waiting_rows_are_counted_where_no_task_has_a_policy(version: Version):
    admitted.sent.delay(1)
    version(admitted.sent)
    assert waiting_calls.by_queue()[QUEUE].due == 1
    [lane] = waiting_calls.staged(current_app)
    assert lane.why == "for room"
    found = {each.name: each.queue_size for each in statistics.of_tasks(current_app.topology)}
    assert found[admitted.sent.name] == 1


def test_rows_of_an_unknown_task_wait_for_a_worker_that_knows_it():
    admitted.sent.delay(1)
    Call.objects.update(task="tests.of.another.version")
    assert send() == []
    [lane] = waiting_calls.staged(current_app)
    assert lane.why == "for a worker that knows the task; this process does not"
