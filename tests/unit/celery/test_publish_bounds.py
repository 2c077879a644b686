"""What workers would bury is refused by its publisher, whichever way it publishes; what they take is not."""

import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from celery import Signature, chain, group
from celery.exceptions import Reject
from kombu.message import Message
from kombu.serialization import dumps

from ami.admission.models import Call
from ami.celery import decompression
from ami.celery.bulk_publisher import publish_many
from ami.celery.publish_bounds import MAX_BODY_DEPTH, MessageRefused
from ami.celery.staged_calls import dispatching
from ami.celery.task_message import (
    MAX_AHEAD_SECONDS,
    MAX_BODY_BYTES,
    MAX_HEADERS_BYTES,
    MAX_ID,
    MAX_LIMIT_SECONDS,
    MAX_RETRIES,
    MAX_TEXT,
    MalformedMessage,
    check,
)
from tests.support.place import celery_at

NAME = "ami.jobs.tasks.audit_bounds"
SECRET = "hidden-from-everyone"  # noqa: S105 - no password

pytestmark = pytest.mark.django_db


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def sized(size: int) -> dict[str, Any]:
    """Return the options of a call whose body has so many bytes."""
    empty = len(dumps(([""], {}, dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))), serializer="json")[2])
    return {"args": ["x" * (size - empty)]}


def following(app: Any, size: int) -> Any:
    return app.signature(NAME, args=["x" * size])


def headers(**fields: Any) -> dict[str, Any]:
    return {"headers": fields}


def ahead(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


#: The options of a call, and what the refusal names.
REFUSED: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "body": (lambda _: sized(MAX_BODY_BYTES + 1), f"body has {MAX_BODY_BYTES + 1} bytes; at most {MAX_BODY_BYTES}"),
    "escaped body": (lambda _: {"kwargs": {"a": "ü" * (MAX_BODY_BYTES // 5)}}, "body has"),
    "compressed body": (lambda _: {**sized(MAX_BODY_BYTES + 1), "compression": "gzip"}, "body has"),
    "callback": (lambda app: {"link": following(app, MAX_BODY_BYTES)}, "body has"),
    "errback": (lambda app: {"link_error": [following(app, MAX_BODY_BYTES)]}, "body has"),
    "callback that is none": (lambda _: {"link": ["next"]}, "its callbacks are not a list of signatures. Give"),
    "errback that is none": (lambda _: {"link_error": "next"}, "its errbacks are not a list of signatures. Give"),
    "chord that is none": (lambda _: {"chord": "next"}, "its chord is not a signature. Give a signature."),
    "many callbacks": (lambda app: {"link": [following(app, 10_000)] * 500}, "body has"),
    "deep body": (lambda _: {"args": [nested(MAX_BODY_DEPTH + 1)]}, f"nested deeper than {MAX_BODY_DEPTH} levels"),
    "endless body": (lambda _: {"kwargs": {"a": nested(5000)}}, "nested deeper"),
    "eta": (lambda _: {"eta": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}, "eta is datetime.datetime(9999"),
    "naive eta": (lambda _: {"eta": datetime(9999, 12, 31)}, "eta is datetime.datetime(9999"),  # noqa: DTZ001
    "eta as text": (lambda _: {"eta": "9999-12-31T00:00:00"}, "eta is '9999-12-31T00:00:00'"),
    "eta too far": (lambda _: {"eta": ahead(MAX_AHEAD_SECONDS + 60)}, "eta is datetime.datetime("),
    "eta of words": (lambda _: {"eta": "tomorrow" * 100}, "eta is 'tomorrow"),
    "eta of another type": (lambda _: {"eta": 5}, "eta is 5"),
    "countdown": (lambda _: {"countdown": MAX_AHEAD_SECONDS + 1}, f"countdown is {MAX_AHEAD_SECONDS + 1}"),
    "countdown NaN": (lambda _: {"countdown": float("nan")}, "countdown is nan"),
    "countdown infinite": (lambda _: {"countdown": float("inf")}, "countdown is inf"),
    "countdown of words": (lambda _: {"countdown": "soon"}, "countdown is 'soon'"),
    "expires NaN": (lambda _: {"expires": float("nan")}, "expires is nan"),
    "expires infinite": (lambda _: {"expires": float("inf")}, "expires is inf"),
    "expires too far": (lambda _: {"expires": 1e15}, "expires is 1000000000000000.0"),
    "expires of words": (lambda _: {"expires": "never"}, "expires is 'never'"),
    "retries": (lambda _: {"retries": 2**40}, f"'retries' is {2**40}, not a whole number from 0 to {MAX_RETRIES}"),
    "retries below 0": (lambda _: {"retries": -1}, "'retries' is -1"),
    "time limit": (lambda _: {"time_limit": MAX_LIMIT_SECONDS + 1}, "'timelimit' is"),
    "time limit NaN": (lambda _: {"time_limit": float("nan")}, "'timelimit' is nan"),
    "time limit below 0": (lambda _: {"soft_time_limit": -1}, "'timelimit' is"),
    "task id": (lambda _: {"task_id": "x" * (MAX_ID + 1)}, "'id' is 'xxxxx"),
    "task id of two lines": (lambda _: {"task_id": "a\nb"}, "'id' is 'a\\nb'"),
    "root id": (lambda _: {"root_id": "x" * (MAX_ID + 1)}, "'root_id' is"),
    "shadow": (lambda _: {"shadow": "x" * (MAX_ID + 1)}, "'shadow' is"),
    "long header": (lambda _: headers(long="x" * (MAX_TEXT + 1)), f"'long' has {MAX_TEXT + 1} characters"),
    "all headers": (
        lambda _: headers(**{f"n{number}": "x" * 30_000 for number in range(4)}),
        f"bytes; at most {MAX_HEADERS_BYTES}",
    ),
    "all headers in other scripts": (lambda _: headers(one="漢" * 40_000), "its headers have 12"),
    "deep header": (lambda _: headers(deep=nested(25)), "'deep' is nested deeper than 20 levels"),
    "header without a name": (lambda _: {"headers": {"h": {5: 1}}}, "header 5 has a name that is not text"),
    "header with a long name": (
        lambda _: headers(**{"n" * (MAX_ID + 1): 1}),
        f"name of {MAX_ID + 1} bytes; at most {MAX_ID}",
    ),
    "header of 65 bits": (lambda _: headers(many=2**64), "'many' is 18446744073709551616, which AMQP cannot carry"),
    "header NaN": (lambda _: headers(rate=float("nan")), "'rate' is nan"),
    "infinite header": (lambda _: headers(deep=[{"rate": float("inf")}]), "'deep' is inf"),
    "header of another type": (lambda _: headers(job=UUID(int=1)), "'job' is a UUID"),
    "serializer": (lambda _: {"serializer": "pickle"}, "serializer is 'pickle'"),
}


@pytest.fixture(params=["message", "row"])
def task(request: pytest.FixtureRequest, make_task: Any, app: Any) -> Iterator[Any]:
    decompression.install()
    with celery_at("memory://"):
        app.declare_everything()
        with app.connection_for_write() as connection, connection.channel() as channel:
            for queue in app.topology.queues:
                channel.queue_purge(queue)  # All tests of this process share a broker in memory.
        yield make_task(NAME, outbox=request.param == "row", sensitive=("password",), typing=False)


def anything_there(app: Any) -> bool:
    with app.connection_for_read() as connection, connection.channel() as channel:
        return Call.objects.exists() or any(channel.basic_get(queue, no_ack=True) for queue in app.topology.queues)


@pytest.mark.parametrize("case", REFUSED)
def test_what_workers_would_bury_is_refused_with_field_value_and_remedy(app: Any, task: Any, case: str):
    options, said = REFUSED[case]
    with pytest.raises(MessageRefused) as refused:
        task.apply_async(**options(app))
    text = str(refused.value)
    assert text.startswith(f"'{NAME}' was not published, since workers would bury it: ")
    assert said in text
    assert text.endswith(".")
    assert len(text) < 400
    assert not anything_there(app)


PUBLISHERS: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "send_task": lambda app, task, given: app.send_task(NAME, **given),
    "delay": lambda app, task, given: task.delay(*given["args"]),
    "on commit": lambda app, task, given: task.apply_async_on_commit(**given),
    "signature": lambda app, task, given: task.signature(**given).apply_async(),
    "signature by name": lambda app, task, given: Signature(NAME, app=app, **given).apply_async(),
    "group": lambda app, task, given: group(task.signature(**given)).apply_async(),
    "chain": lambda app, task, given: chain(task.si(), task.signature(**given)).apply_async(),
    "many": lambda app, task, given: publish_many(app, [task.signature(**given)]),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("publish", PUBLISHERS.values(), ids=PUBLISHERS)
def test_every_way_to_publish_refuses(app: Any, task: Any, publish: Any):
    with pytest.raises(MessageRefused, match="body has"):
        publish(app, task, sized(MAX_BODY_BYTES + 1))
    assert not anything_there(app)


def test_task_that_this_process_does_not_know_is_refused_as_well(app: Any, task: Any):
    for given in (sized(MAX_BODY_BYTES + 1), {"countdown": float("nan")}, {"time_limit": -1}):
        with pytest.raises(MessageRefused, match=r"^'elsewhere\.work' was not published"):
            app.send_task("elsewhere.work", **given)
    with pytest.raises(MessageRefused, match="'task' is 'xxx"):
        app.send_task("x" * (MAX_ID + 1))


def test_refusal_quotes_no_argument(app: Any, task: Any):
    with pytest.raises(MessageRefused) as refused:
        task.apply_async(kwargs={"password": SECRET, "other": "x" * MAX_BODY_BYTES})
    assert SECRET not in str(refused.value)


ACCEPTED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "nothing": lambda _: {},
    "body": lambda _: sized(MAX_BODY_BYTES),
    "compressed body": lambda _: {**sized(MAX_BODY_BYTES), "compression": "gzip"},
    "deep body": lambda _: {"args": [nested(MAX_BODY_DEPTH - 10)]},
    "many brackets": lambda _: {"args": [[[]] * 5000, "[" * 5000]},
    "eta": lambda _: {"eta": ahead(MAX_AHEAD_SECONDS - 60)},
    "past eta": lambda _: {"eta": datetime(1, 1, 1, tzinfo=UTC)},
    "countdown": lambda _: {"countdown": MAX_AHEAD_SECONDS - 60},
    "countdown as text": lambda _: {"countdown": "5"},
    "past countdown": lambda _: {"countdown": -5},
    "expires": lambda _: {"expires": datetime(9999, 12, 31, tzinfo=UTC)},
    "expired": lambda _: {"expires": -5},
    "retries": lambda _: {"retries": MAX_RETRIES},
    "time limit": lambda _: {"time_limit": MAX_LIMIT_SECONDS, "soft_time_limit": 0.5},
    "task id": lambda _: {"task_id": "x" * MAX_ID},
    "headers": lambda _: headers(one="x" * MAX_TEXT, deep=nested(18), number=1.5, other={"a": [None, True]}),
    "callbacks": lambda app: {"link": [following(app, 10)] * 300, "link_error": following(app, 10)},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_workers_take_is_published_up_to_the_bound(app: Any, task: Any, case: str, monkeypatch: Any):
    received = published(app, task, ACCEPTED[case](app), monkeypatch)
    for message in received:
        check(message, {NAME})
    assert received or Call.objects.count() == 1


@pytest.mark.parametrize("case", ["body", "deep header", "long header", "retries", "time limit", "task id", "eta"])
def test_worker_does_bury_what_is_refused(app: Any, make_task: Any, monkeypatch: Any, case: str):
    with celery_at("memory://"):
        app.declare_everything()
        given = REFUSED[case][0](app)
        if case == "eta":
            given = headers(eta=given["eta"].isoformat())
        with dispatching():
            [message] = published(app, make_task(NAME), given, monkeypatch)
        with pytest.raises(MalformedMessage):
            check(message, {NAME})


def published(app: Any, task: Any, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Publish a call; return its message as a worker receives it, if it is no row."""
    received: list[Message] = []

    def keep(_: Any, body: Any, __: Any, content_type: str, content_encoding: str, headers: Any, *___: Any) -> None:
        received.append(
            Message(
                body,
                content_type=content_type,
                content_encoding=content_encoding,
                headers=headers,
                accept={"application/json"},
            )
        )

    monkeypatch.setattr("ami.celery.producer.ConfirmedProducer._publish", keep)
    task.apply_async(**given)
    return received


@pytest.mark.parametrize("given", [{"countdown": float("nan")}, {"args": ["x" * MAX_BODY_BYTES]}])
def test_retry_that_is_refused_is_a_failure_of_the_task(task: Any, given: dict[str, Any]):
    task.push_request(id="one", args=(), kwargs={}, called_directly=False, delivery_info={}, retries=0)
    try:
        with pytest.raises(MessageRefused):
            task.retry(**given)
    finally:
        task.pop_request()


def test_refusal_comes_out_of_the_process_of_a_task_as_it_was(app: Any):
    with pytest.raises(MessageRefused) as refused:
        app.send_task(NAME, countdown=float("nan"))
    for error in (refused.value, Reject(refused.value, requeue=False)):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - as the pool does
        assert (type(copy), str(copy)) == (type(error), str(error))
