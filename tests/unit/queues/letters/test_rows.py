"""Dead letters become rows, once for each death, and are published again from there."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery import current_app
from django.conf import settings
from django.db import DataError
from django.db.models.functions import Now
from kombu import Connection, Message

from ami.celery.app import LETTER_HEADER, PUBLISH_ID_HEADER
from ami.queues import dead_letters
from ami.queues.letters import both, collector, replays, rows
from ami.queues.letters.collector import Collector
from ami.queues.letters.publishing import message_of
from ami.queues.models import Letter, Replay
from ami.queues.wishes import Operator
from tests.support.brokers import celery_at

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
TESTER = Operator("tester")
QUEUE, HOME = "antenna-ingest.dlq", "antenna-ingest"


@pytest.fixture
def broker(settings: Any) -> Iterator[Connection]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with (
        celery_at(f"objectstore+memory://letters-{uuid4().hex}"),
        current_app.connection_for_write() as connection,
    ):
        current_app.declare_everything()
        yield connection


def bury(broker: Connection, publish_id: str = "", body: Any = None, **headers: Any) -> None:
    """Put a message into the dead-letter queue, as the broker does."""
    given = {"task": "ami.ml.tasks.save", "id": "an-id", "argsrepr": "(1,)", "retries": 3, **headers}
    if publish_id:
        given[PUBLISH_ID_HEADER] = publish_id
    with broker.channel() as channel:
        message = channel.prepare_message(
            body or '[[1], {}, {"callbacks": null}]', 5, "application/json", "utf-8", given, {"correlation_id": "an-id"}
        )
        channel.basic_publish(message, exchange="", routing_key=QUEUE)


def take(broker: Connection, queue: str = QUEUE, *, acknowledges: bool = True) -> list[Message]:
    channel = broker.channel()
    taken = []
    while (raw := channel.basic_get(queue, no_ack=False)) is not None:
        taken.append(channel.message_to_python(raw))
    for message in taken if acknowledges else ():
        channel.basic_ack(message.delivery_tag)
    if not acknowledges:
        channel.close()  # Returns them, flagged.
    return taken


def test_letter_is_kept_with_all_that_publishes_it_again(broker: Connection):
    bury(broker, "p1", antenna_origin="beat")
    rows.write(QUEUE, take(broker))
    row = Letter.objects.get()
    assert (row.queue, row.task_id, row.task, row.retries, row.state) == (
        QUEUE,
        "an-id",
        "ami.ml.tasks.save",
        3,
        "dead",
    )
    assert (row.identity, row.digest, row.arguments) == ("p1:0", "", "(1,)")
    assert bytes(row.body).startswith(b"[[1]")
    assert both.counts(settings.ANTENNA_TOPOLOGY, broker)[QUEUE] == 1
    ((shown),) = both.oldest(broker, QUEUE)
    assert (shown.task_id, shown.retries) == ("an-id", 3)


def test_death_that_comes_again_is_one_row_and_another_publish_is_another(broker: Connection):
    for publish_id in ("p1", "p2", "p3"):
        bury(broker, publish_id)
    first = take(broker, acknowledges=False)
    rows.write(QUEUE, first)
    rows.write(QUEUE, take(broker))
    assert sorted(Letter.objects.values_list("identity", flat=True)) == ["p1:0", "p2:0", "p3:0"]
    bury(broker, "p1", **{"x-death": [{"queue": HOME, "reason": "rejected", "count": 1}]})
    rows.write(QUEUE, take(broker))
    assert Letter.objects.filter(identity="p1:1", reason="rejected").count() == 1


def test_equal_messages_of_a_stranger_are_counted_and_a_redelivered_one_is_not(broker: Connection):
    for _ in range(3):
        bury(broker)
    unacknowledged = take(broker, acknowledges=False)
    assert len(unacknowledged) == 3
    rows.write(QUEUE, unacknowledged[:2])  # Its process dies before it acknowledges them.
    again = take(broker)
    assert all(message.delivery_info["redelivered"] for message in again)
    rows.write(QUEUE, again)
    rows.settled(again)
    assert Letter.objects.count() == 3

    bury(broker)
    rows.write(QUEUE, take(broker))
    assert Letter.objects.count() == 4, "an equal message that was sent later is another one"


def test_replayed_letter_runs_where_its_task_belongs_and_its_next_death_is_in_its_row(broker: Connection):
    bury(broker, "p1")
    bury(broker, "p2")
    rows.write(QUEUE, take(broker))
    assert both.replay(settings.ANTENNA_TOPOLOGY, broker, QUEUE, TESTER, 1) == 1
    first, second = Letter.objects.order_by("pk")
    assert (first.state, second.state) == ("replayed", "dead")
    home = dead_letters.destination(settings.ANTENNA_TOPOLOGY, message_of(first))[1]
    (message,) = take(broker, home)
    assert (message.headers["retries"], message.headers["id"], message.payload[0]) == (0, "an-id", [1])
    assert message.properties["correlation_id"] == "an-id"
    assert message.headers[PUBLISH_ID_HEADER] != "p1"

    headers = {name: value for name, value in message.headers.items() if name != PUBLISH_ID_HEADER}
    for _ in range(2):  # The second one is the same death, delivered again.
        bury(broker, message.headers[PUBLISH_ID_HEADER], **headers)
    rows.write(QUEUE, take(broker))
    first.refresh_from_db()
    assert (first.state, first.died) == ("dead", 2)
    assert Letter.objects.count() == 2


def test_replay_that_was_interrupted_goes_on_and_each_is_published_once(broker: Connection):
    for number in range(250):
        bury(broker, f"p{number}")
    rows.write(QUEUE, take(broker))

    class Killed(BaseException):
        pass

    def die(done: int) -> None:
        if done == 120:
            raise Killed

    with pytest.raises(Killed):
        both.replay(settings.ANTENNA_TOPOLOGY, broker, QUEUE, TESTER, progress=die)
    assert both.planned(broker, QUEUE) == 110, "the batch that was marked is the interrupted replay's"
    assert not replays.waiting()
    Replay.objects.update(until=Now() - timedelta(seconds=1))
    (key,) = replays.waiting().values_list("pk", flat=True)
    assert replays.work(settings.ANTENNA_TOPOLOGY, broker, key).state == "ended"
    home = dead_letters.destination(settings.ANTENNA_TOPOLOGY, message_of(Letter.objects.first()))[1]
    keys = [message.headers[LETTER_HEADER] for message in take(broker, home)]
    assert len(keys) == len(set(keys)) == 250


def test_discard_takes_rows_first_and_they_are_kept_for_a_while(broker: Connection):
    for number in range(3):
        bury(broker, f"p{number}")
    rows.write(QUEUE, take(broker)[:2])
    bury(broker, "p9")
    assert both.discard(broker, QUEUE, 1) == 1
    assert both.counts(settings.ANTENNA_TOPOLOGY, broker)[QUEUE] == 2
    assert both.discard(broker, QUEUE) == 2
    assert both.counts(settings.ANTENNA_TOPOLOGY, broker)[QUEUE] == 0
    assert set(Letter.objects.values_list("state", flat=True)) == {"discarded"}
    Letter.objects.update(collected_at=Now() - timedelta(days=31))
    rows.forget_old()
    assert not Letter.objects.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"id": "\x00\ud800", "task": "x" * 1000, "argsrepr": "\x00"},
        {"id": 7, "task": None, "retries": -5},
        {"id": "a", "retries": 10**30, "x-death": "nonsense"},
        {"id": "a", "x-death": [{"count": "many"}, "x"]},
        {"id": "a", PUBLISH_ID_HEADER: "x" * 5000},
        {"id": "a", PUBLISH_ID_HEADER: {"a": 1}, LETTER_HEADER: "1"},
        {"id": "a", LETTER_HEADER: 10**9},
        {"id": "a", "deep": [[[[{"a": [1.5, True, None]}]]]]},
    ],
)
@pytest.mark.parametrize("body", [b"\x00\xff\xfe", "text \x00 \udcff", "", b"x" * 100_000])
def test_no_message_of_a_stranger_keeps_others_from_being_collected(headers: dict[str, Any], body: Any):
    message = Message(
        body=body,
        delivery_tag=1,
        content_type="\x00" * 300,
        content_encoding="binary",
        headers=headers,
        properties={"correlation_id": b"\xff", "priority": None},
        delivery_info={"redelivered": True},
        channel=None,
    )
    good = Message(body="[]", headers={"id": "good", "task": "t", PUBLISH_ID_HEADER: "p1"}, properties={})
    rows.write(QUEUE, [message, good])
    assert Letter.objects.count() == 2
    for row in Letter.objects.all():
        assert message_of(row).headers["id"]


HUGE = 10**400


@pytest.mark.parametrize(
    "headers",
    [
        {"retries": HUGE},
        {"retries": True},
        {"retries": "x"},
        {"x-death": [{"count": HUGE}, {"count": -HUGE}, {"count": "x"}, {"count": float("inf")}]},
        {"x-death": [{"reason": "nul \0" * 100}]},
        {"id": "nul \0", "task": "half \ud800"},
        {"id": [1] * 1000, "task": {"a": "b" * 1000}},
        {LETTER_HEADER: HUGE},
        {LETTER_HEADER: True},
        {PUBLISH_ID_HEADER: "nul \0"},
        {PUBLISH_ID_HEADER: "a" * 64, "x-death": [{"count": 2**63 - 1}] * 9},
        {"antenna_reason": "nul \0" * 500, "antenna_reason_kind": 5},
    ],
)
def test_any_letter_is_written_whatever_its_headers_say(broker: Connection, headers: dict[str, Any]):
    bury(broker, **headers)
    (message,) = take(broker)
    message.headers.update(headers)
    rows.write(QUEUE, [message])
    assert len(rows.oldest(QUEUE, 5)) == 1


@pytest.mark.django_db(transaction=True)
def test_letter_that_is_refused_stays_in_its_queue_and_holds_up_no_other(
    broker: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refuse(queue: str, messages: Any) -> None:
        if any(each.headers["id"] == "odd" for each in messages):
            raise DataError("value out of range")
        write(queue, messages)

    write = rows.write
    monkeypatch.setattr(rows, "write", refuse)
    monkeypatch.setattr(collector, "short_connection", nullcontext)
    bury(broker, "p0", id="odd")
    bury(broker, "p1")
    made = Collector()
    made.turn(current_app, "collector")
    assert Letter.objects.values_list("identity", flat=True).get() == "p1:0"
    bury(broker, "p2")
    made._next = 0.0
    made.turn(current_app, "collector")
    made.close()
    assert Letter.objects.count() == 2
    (line,) = [each for each in caplog.records if "refuses it" in each.message]
    assert (vars(line)["task"], vars(line)["task_id"], vars(line)["queue"]) == ("ami.ml.tasks.save", "odd", QUEUE)
    assert [message.headers["id"] for message in take(broker)] == ["odd"]
