"""Everything that is published passes through the application's ``send_task``: delay, origin, queue and expiry."""

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from celery.exceptions import QueueNotFound
from celery.signals import before_task_publish

from ami.celery import origin
from ami.celery.app import CONFIRM_TIMEOUT_SECONDS, PUBLISHED_HEADER
from ami.topology.router import ORIGIN_HEADER
from tests.support.place import celery_at

AUDIT = "ami.jobs.tasks.audit_jobs"
RESULT = "ami.jobs.tasks.process_nats_pipeline_result"
Sent = list[dict[str, Any]]


def publish(app: Any, sent: Sent, name: str = AUDIT, **options: Any) -> dict[str, Any]:
    app.send_task(name, **options)
    return sent[-1]


def running(name: str, publisher: str | None) -> Any:
    """A task that runs, and the origin of its message."""

    class Parent:
        class request:
            headers = {ORIGIN_HEADER: publisher} if publisher else None

    return Parent


@pytest.fixture
def parent(app: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a task of this origin the one that publishes."""

    def parent(publisher: str | None) -> None:
        current = property(lambda _: running(AUDIT, publisher))
        monkeypatch.setattr(type(app), "current_worker_task", current, raising=False)

    return parent


@pytest.mark.parametrize(
    ("countdown", "kept"), [(None, None), (0, None), (-5, None), (0.5, None), (0.999, None), (1, 1), (1.2, 2), (90, 90)]
)
def test_countdown_is_whole_seconds_and_under_a_second_is_sent_at_once(
    app: Any, sent: Sent, countdown: float | None, kept: int | None
):
    before = time.time()
    message = publish(app, sent, countdown=countdown)
    assert message.get("countdown") == kept
    assert 0 <= message["headers"][PUBLISHED_HEADER] - before - (kept or 0) < 5


@pytest.mark.parametrize("form", ["aware", "naive", "text", "naive text", "elsewhere"])
def test_eta_becomes_a_countdown_rounded_up(app: Any, sent: Sent, form: str):
    due = datetime.now(UTC) + timedelta(seconds=30.5)
    eta = {
        "aware": due,
        "naive": due.replace(tzinfo=None),
        "text": due.isoformat(),
        "naive text": due.replace(tzinfo=None).isoformat(),
        "elsewhere": due.astimezone(timezone(timedelta(hours=-7))),
    }[form]
    message = publish(app, sent, eta=eta)
    assert "eta" not in message
    assert message["countdown"] in (30, 31)
    assert message["headers"][PUBLISHED_HEADER] >= due.timestamp() - 0.6


@pytest.mark.parametrize("seconds", [-3600, 0.4])
def test_eta_that_is_past_or_less_than_a_second_away_is_sent_at_once(app: Any, sent: Sent, seconds: float):
    message = publish(app, sent, eta=datetime.now(UTC) + timedelta(seconds=seconds))
    assert "eta" not in message
    assert "countdown" not in message


def test_transport_without_delay_queues_keeps_the_fraction(app: Any, sent: Sent):
    with celery_at("memory://"):
        assert publish(app, sent, countdown=1.25)["countdown"] == 1.25
        assert "confirm_timeout" not in sent[-1]


def test_publisher_waits_for_the_brokers_confirmation_only_so_long(app: Any, sent: Sent):
    assert publish(app, sent)["confirm_timeout"] == CONFIRM_TIMEOUT_SECONDS
    assert publish(app, sent, confirm_timeout=1)["confirm_timeout"] == 1


def test_origin_is_task_by_default(app: Any, sent: Sent):
    assert publish(app, sent)["headers"][ORIGIN_HEADER] == origin.TASK


def test_origin_is_inherited_only_where_the_row_says_so(app: Any, sent: Sent, parent: Any):
    parent(origin.PERSON)
    assert publish(app, sent, AUDIT)["headers"][ORIGIN_HEADER] == origin.PERSON
    assert publish(app, sent, RESULT)["headers"][ORIGIN_HEADER] == origin.TASK
    parent(None)
    assert publish(app, sent, AUDIT)["headers"][ORIGIN_HEADER] == origin.TASK


def test_callers_headers_are_not_changed(app: Any, sent: Sent):
    headers: dict[str, Any] = {}
    publish(app, sent, headers=headers)
    assert headers == {}


def test_unknown_queue_is_an_error_with_the_nearest_name(app: Any, sent: Sent, settings: Any):
    with pytest.raises(QueueNotFound) as refused:
        app.send_task(AUDIT, queue="antena-ingest")
    assert str(refused.value).strip("'\"").startswith("No workload consumes the queue 'antena-ingest'.")
    assert "Did you mean 'antenna-ingest'?" in str(refused.value)
    assert f"Known: {', '.join(settings.ANTENNA_TOPOLOGY.queues)}." in str(refused.value)
    assert sent == []


def test_retry_forgets_where_the_last_try_was_delivered(app: Any, sent: Sent):
    delivered = {"queue": "antenna", "exchange": "antenna", "routing_key": "antenna", "redelivered": True}
    first = publish(app, sent, retries=0, **delivered)
    assert first["queue"] == "antenna"
    again = publish(app, sent, retries=1, priority=3, **delivered)
    assert not delivered.keys() & again.keys()
    assert again["priority"] == 3


@pytest.mark.parametrize("retries", [0, 1])
def test_retry_for_a_removed_queue_is_routed_anew(app: Any, sent: Sent, retries: int):
    if retries:
        assert "queue" not in publish(app, sent, queue="antenna-slow", retries=retries)
    else:
        with pytest.raises(QueueNotFound):
            app.send_task(AUDIT, queue="antenna-slow")


def test_expiry_reaches_the_worker_and_not_the_brokers_ttl(app: Any):
    published: list[dict[str, Any]] = []

    def seen(headers: Any = None, properties: Any = None, **_: Any) -> None:
        published.append({"expires": headers["expires"], **properties})

    before_task_publish.connect(seen, weak=False)
    try:
        with celery_at("memory://localhost/expiry"):
            app.send_task(AUDIT, expires=30)
    finally:
        before_task_publish.disconnect(seen)
    (message,) = published
    assert message["expires"]
    assert "expiration" not in message
