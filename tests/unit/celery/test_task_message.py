"""What is a proper task message, and what is refused before Celery sees it."""

from types import SimpleNamespace
from typing import Any

import pytest
from kombu.message import Message

from ami.celery import amqp_properties, decompression
from ami.celery.task_message import MAX_BODY_BYTES, MalformedMessage, check
from tests.support.hostile_messages import BURIED, HOSTILE, TASK, Hostile, headers

TASKS = {TASK}


def received(case: Hostile) -> Message:
    """Return a case as kombu's consumer would hand it on."""
    properties = dict(case.properties)
    return Message(
        case.body,
        content_type=properties.pop("content_type", None),
        content_encoding=properties.pop("content_encoding", None),
        headers=dict(case.headers),
        properties=properties,
        accept={"application/json"},
    )


@pytest.fixture(autouse=True)
def bounded() -> None:
    decompression.install()
    amqp_properties.install()


IN_MEMORY = [case for case in HOSTILE if not case.needs_amqp]


def is_refused(case: Hostile) -> bool:
    message = received(case)
    try:
        check(message, TASKS)
    except MalformedMessage:
        return True
    return bool(message.errors)


def test_hostile_messages_are_refused():
    assert [case.name for case in IN_MEMORY if case.outcome == BURIED and not is_refused(case)] == []


def test_odd_messages_that_harm_nothing_may_start():
    assert [case.name for case in IN_MEMORY if case.outcome != BURIED and is_refused(case)] == []


def test_there_are_more_than_eighty_hostile_messages():
    assert len([case for case in IN_MEMORY if case.outcome == BURIED]) >= 80


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("add", {}),
        ("add", {"countdown": 5, "expires": 60, "time_limit": 9.5, "soft_time_limit": 3, "priority": 9}),
        ("add", {"link": "callback", "link_error": "callback", "shadow": "sum", "retries": 3}),
        (
            "add",
            {"headers": {"antenna_long": True}, "group_id": "g", "group_index": 0, "root_id": "r", "parent_id": "p"},
        ),
    ],
)
def test_whatever_celery_publishes_is_proper(app: Any, make_task: Any, task: str, options: dict[str, Any]):
    add = make_task(task)
    callback = make_task("callback")
    options = {name: callback.s() if value == "callback" else value for name, value in options.items()}
    with app.connection_for_write() as connection:
        published = capture(app, connection, add, options)
    check(published, {task})


def capture(app: Any, connection: Any, task: Any, options: dict[str, Any]) -> Message:
    """Return what a worker would receive of ``task.apply_async(**options)``."""
    sent: list[Any] = []

    class Producer(app.amqp.Producer):  # type: ignore[misc, name-defined]
        def publish(self, body: Any, **given: Any) -> None:
            encoded = self._prepare(body, given["serializer"])
            sent.append(
                SimpleNamespace(body=encoded[0], type=encoded[1], encoding=encoded[2], headers=given["headers"])
            )

    task.apply_async((), {}, producer=Producer(connection), **options)
    [one] = sent
    return Message(one.body, content_type=one.type, content_encoding=one.encoding, headers=one.headers)


def test_reason_quotes_neither_arguments_nor_bodies():
    secret = "s3cret-value"
    for body in (f'[["{secret}", {{}}, {{}}]', f'{{"{secret}": 1}}', f'["{secret}", {{}}, {{}}]'):
        with pytest.raises(MalformedMessage) as refused:
            check(received(Hostile("secret", body.encode(), headers("secret"))), TASKS)
        assert secret not in str(refused.value)


def test_body_as_large_as_is_allowed_is_read():
    body = b'[["' + b"x" * (MAX_BODY_BYTES - 20) + b'"], {}, {}]'
    check(received(Hostile("large", body, headers("large"))), TASKS)


@pytest.mark.parametrize("name", ["zlib bomb", "bzip2 bomb", "lzma bomb"])
def test_decompression_stops_at_the_limit(name: str):
    message = received(next(case for case in HOSTILE if case.name == name))
    [(kind, error, _)] = message.errors
    assert kind is decompression.DecompressionError
    assert str(error) == f"its body has more than {MAX_BODY_BYTES} bytes when decompressed"


def test_compressed_task_is_read():
    from kombu.compression import compress

    for name in ("gzip", "bzip2", "lzma"):
        body, content_type = compress(b'[["hostile"], {}, {}]', name)
        message = received(Hostile("small", body, headers("small", compression=content_type)))
        assert not message.errors
        check(message, TASKS)
