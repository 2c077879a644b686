"""A priority is sent as the broker has it: two levels on RabbitMQ, many in a folder, none elsewhere."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection

from ami.celery import priority
from tests.support.place import celery_at


@pytest.fixture(autouse=True)
def first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has warned of nothing yet."""
    monkeypatch.setattr(priority, "_warned", set())


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("amqp://", [0, 0, 0, 5, 5, 5]),
        ("objectstore+memory://levels", [0, 0, 4, 5, 9, 200]),
        ("redis://", [0, 0, 0, 0, 0, 0]),
        ("memory://", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_priority_becomes_a_level_of_the_broker(url: str, sent: list[int]):
    connection = Connection(url)
    assert [priority.level(connection, given) for given in (None, 0, 4, 5, 9, 200)] == sent


@pytest.mark.parametrize("given", ["high", -1, "", [5]])
def test_priority_that_is_no_number_is_refused(given: Any):
    with pytest.raises(ValueError, match=r"priority is .*; it must be a number from 0 \(normal\) to 9"):
        priority.level(Connection("amqp://"), given)


def rabbitmq(**properties: str) -> Any:
    """A connection to a broker that describes itself so."""
    return SimpleNamespace(
        transport=SimpleNamespace(driver_type="amqp"), connection=SimpleNamespace(server_properties=properties)
    )


@pytest.mark.parametrize(
    ("product", "version", "ignored"),
    [
        ("RabbitMQ", "3.10.8", True),
        ("RabbitMQ", "3.13.7", True),
        ("RabbitMQ", "4.0.2", False),
        ("RabbitMQ", "4.1.0-rc.1+2.g5b3", False),
        ("RabbitMQ", "10.0", False),
        ("RabbitMQ", "unknown", False),
        ("LavinMQ", "2.0.0", False),
    ],
)
def test_quorum_queues_have_priorities_since_rabbitmq_4(product: str, version: str, ignored: bool):
    why = priority.why_ignored(rabbitmq(product=product, version=version))
    assert bool(why) is ignored
    assert not ignored or f"RabbitMQ {version} have no priorities" in why


def test_ignored_priority_is_logged_once_in_a_process(app: Any, caplog: pytest.LogCaptureFixture):
    with celery_at("memory://localhost"), caplog.at_level(logging.WARNING, logger="ami"):
        app.send_task("tests.first", queue="antenna")
        app.send_task("tests.first", queue="antenna", priority=0)
        assert caplog.messages == []
        app.send_task("tests.first", queue="antenna", priority=9)
        app.send_task("tests.second", queue="antenna", priority=3)
        (record,) = caplog.records
        assert record.getMessage() == "Priority ignored: memory as a broker has no priorities here"
        assert record.task == "tests.first"


def test_broker_of_many_levels_gets_the_priority_as_given(app: Any, caplog: pytest.LogCaptureFixture):
    with celery_at("objectstore+memory://kept"), caplog.at_level(logging.WARNING, logger="ami"):
        for given in (0, 3, 9):
            app.send_task("tests.any", queue="antenna", priority=given)
        with app.connection_for_read() as connection:
            channel = connection.channel()
            taken = [channel.basic_get("antenna", no_ack=True).properties["priority"] for _ in range(3)]
    assert taken == [9, 3, 0]
    assert caplog.messages == []
