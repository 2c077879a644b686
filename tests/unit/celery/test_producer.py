"""A publisher's wait for the broker's confirmation ends, and so does what it leaves behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError

from ami.celery.producer import CONFIRM_TIMEOUT_SECONDS, ConfirmedProducer, Unconfirmed
from ami.queues import diagnostics
from tests.support.place import celery_at


class Broker:
    """The channel of a broker that confirms nothing; ``limits`` are the waits it was asked for."""

    def __init__(self) -> None:
        self.connection = SimpleNamespace(client=Connection("amqp://unused"))
        self.limits: list[float | None] = []
        self.collected = 0
        self.connection.client.collect = self._collect

    def _collect(self) -> None:
        self.collected += 1

    def prepare_message(self, *args: Any, **kwargs: Any) -> None:
        pass

    def basic_publish(self, message: Any, confirm_timeout: float | None = None, **_: Any) -> None:
        """Wait in vain."""
        self.limits.append(confirm_timeout)
        raise TimeoutError("timed out")


def producer_at(broker: Broker) -> ConfirmedProducer:
    made = ConfirmedProducer.__new__(ConfirmedProducer)
    made._channel = broker
    made.__connection__ = broker.connection.client
    made.exchange = SimpleNamespace(name="", delivery_mode=None)
    made.auto_declare = False
    made.serializer = made.compression = None
    made._batch_local = SimpleNamespace(current=None)
    return made


@pytest.mark.parametrize(("asked", "waited"), [(None, CONFIRM_TIMEOUT_SECONDS), (3.0, 3.0)])
def test_incident_7_unconfirmed_publish_fails_and_drops_its_connection(asked: float | None, waited: float):
    broker = Broker()
    with pytest.raises(Unconfirmed) as raised:
        producer_at(broker).publish("text", confirm_timeout=asked)
    assert isinstance(raised.value, OperationalError), "what every caller is prepared for"
    assert broker.limits == [waited]
    assert broker.collected == 1, "to close it in order would wait for the same broker"


def test_it_is_not_tried_again_which_would_wait_as_long_again():
    broker = Broker()
    with pytest.raises(Unconfirmed):
        producer_at(broker).publish("text", retry=True, retry_policy={"max_retries": 3})
    assert len(broker.limits) == 1


def test_everything_of_the_application_is_published_so(app: Any):
    with celery_at("memory://"), app.producer_or_acquire() as producer:
        assert isinstance(producer, ConfirmedProducer)
    assert app.amqp.Producer is ConfirmedProducer, "beat's"


def test_live_check_reports_the_alarm_when_workers_cannot_be_inspected(
    app: Any, db: None, monkeypatch: pytest.MonkeyPatch
):
    def refused(_: Any) -> None:
        raise Unconfirmed("no")

    @contextmanager
    def connection() -> Iterator[Any]:
        yield SimpleNamespace(ensure_connection=lambda **_: None)

    monkeypatch.setattr(diagnostics.sources, "findings", list)  # They ask the broker by connections of their own.
    monkeypatch.setattr(diagnostics.governors, "stats", refused)
    monkeypatch.setattr(app, "connection_for_read", connection)
    for name in ("consumed", "given_up"):
        monkeypatch.setattr(diagnostics.queues, name, lambda *_, **__: [])
    monkeypatch.setattr(diagnostics.broker, "managed", lambda *_: [diagnostics.Finding("error", "alarm", "disk")])
    found = [(one.level, one.name) for one in diagnostics.findings(app.topology, app, "")]
    assert found == [("error", "alarm"), ("unseen", "no-worker")]
