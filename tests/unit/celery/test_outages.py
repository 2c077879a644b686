"""One line when a source goes, one a minute while it is away, one when it is back, and nothing of what follows."""

import logging
from collections.abc import Iterator

import pytest
from django.db import IntegrityError, OperationalError
from kombu.exceptions import OperationalError as BrokerError

from ami.celery import outages
from ami.celery.outages import BROKER, CONFIRMATIONS, DATABASE, OutageFilter
from ami.celery.producer import Unconfirmed

AWAY = OperationalError("connection refused")


class Clock:
    """Stands still until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(outages, "time", made)
    for kept in (outages._outages, outages._complained_at):
        kept.clear()
    yield made
    for kept in (outages._outages, outages._complained_at):
        kept.clear()


def logged(name: str, error: BaseException, *args: object) -> bool:
    """Whether a handler of a process shows a line of this logger with the error's traceback."""
    record = logging.LogRecord(name, logging.ERROR, "", 0, "failed %s", args, (type(error), error, None))
    return OutageFilter().filter(record)


def test_outage_is_a_line_then_one_a_minute_and_one_when_it_is_over(clock: Clock, caplog: pytest.LogCaptureFixture):
    for _ in range(150):
        clock.now += 1
        assert not logged("django_celery_beat.schedulers", AWAY)
        outages.complain("Calls not dispatched", AWAY)
    outages.answered(DATABASE)
    assert len(caplog.records) == 3, "it was away a moment ago"
    clock.now += outages.QUIET_SECONDS
    outages.answered(DATABASE)
    outages.answered(DATABASE)
    said = [record.getMessage() for record in caplog.records]
    assert ["connection refused" in line for line in said] == [True, True, True, False]
    assert said[1].endswith("For 60 s so far.")
    assert said[-1] == "The database answers again, after 161 s."


def test_two_sources_are_named_once_each(clock: Clock, caplog: pytest.LogCaptureFixture):
    for error in (AWAY, BrokerError("connection refused")) * 3:
        outages.failed(error)
    assert ["DATABASE_URL" in line for line in caplog.messages] == [True, False]
    assert "CELERY_BROKER_URL" in caplog.messages[1]


def test_frozen_broker_is_one_line_and_not_a_second_for_confirmations(clock: Clock, caplog: pytest.LogCaptureFixture):
    outages.failed(Unconfirmed("no"))
    outages.failed(BrokerError("timed out"))
    outages.answered(CONFIRMATIONS, is_sure=True)
    outages.answered(BROKER, is_sure=True)
    assert len(caplog.messages) == 2
    assert "did not confirm" in caplog.messages[0]


def test_errors_of_other_kinds_are_logged_as_ever(clock: Clock):
    outages.failed(AWAY)
    assert logged("ami.jobs.tasks", IntegrityError("duplicate key"))
    assert logged("ami.ml.services", ConnectionRefusedError(111, "refused")), "of a processing service, perhaps"
    assert logged("celery.app.trace", AWAY), "a task keeps its lines"
    assert not logged("celery.worker.consumer.consumer", ConnectionRefusedError(111, "refused"))


def test_component_complains_of_its_own_fault_once_a_minute(clock: Clock, caplog: pytest.LogCaptureFixture):
    for _ in range(90):
        clock.now += 1
        outages.complain("Dead letters not collected", IntegrityError("duplicate key"))
    assert len(caplog.messages) == 2
