"""Many tasks published at once over real brokers: equal messages, refusals, connections that break in the middle."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue

from ami.celery import confirming_connection
from ami.celery.bulk_publisher import UnconfirmedTasks, publish_many
from ami.celery.producer import Unconfirmed
from tests.support.brokers import RABBITMQ, celery_at, new_broker, set_broker
from tests.support.bulk_messages import breaking, drained, ids, many_kinds

CONFIRMED = {"confirm_publish": True}


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[str]:
    """A virtual host."""
    with new_broker(RABBITMQ, f"many-{uuid.uuid4().hex[:8]}", tmp_path) as url:
        yield url


def plain_app(url: str, **arguments: Any) -> Celery:
    """An application of Celery's own with one queue and one task."""
    app = Celery(uuid.uuid4().hex, set_as_current=False)
    name = f"many-{uuid.uuid4().hex[:8]}"
    app.conf.update(
        broker_read_url=url,
        broker_write_url=url,
        broker_transport_options=CONFIRMED if url.startswith("amqp") else {},
        task_queues=[Queue(name, Exchange(name, "direct"), name, queue_arguments=arguments)],
        task_default_queue=name,
        task_default_exchange=name,
        task_default_routing_key=name,
        task_ignore_result=True,
        task_publish_retry_policy={"max_retries": 3, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.2},
    )

    @app.task(name="many.nothing", shared=False)
    def nothing(number: int) -> None:
        pass

    return app


def signatures(app: Celery, count: int) -> list[Any]:
    return [app.tasks["many.nothing"].s(number) for number in range(count)]


def test_messages_on_rabbitmq_equal_those_of_apply_async(rabbitmq: str):
    from config import celery_app as app

    with celery_at(rabbitmq, CONFIRMED):
        # The first finds no exchange, and declares the topology.
        assert len(publish_many(app, many_kinds(app)[:3])) == 3
        queues = app.topology.queues
        drained(rabbitmq, queues, 3)
        for each in many_kinds(app):
            each.apply_async()
        expected = sorted(drained(rabbitmq, queues, 11), key=lambda each: each["id"])
        publish_many(app, many_kinds(app))
        found = sorted(drained(rabbitmq, queues, 11), key=lambda each: each["id"])
    for one, other in zip(found, expected, strict=True):
        if one["id"] not in ("id-9", "id-10"):  # Their bodies have signatures with ids of their own.
            assert one == other
        assert one["headers"].keys() == other["headers"].keys()


def test_messages_on_redis_equal_those_of_apply_async_in_order():
    url = os.environ["REDIS_URL"]
    app = plain_app(url)
    queue = app.conf.task_default_queue
    many = [each.set(task_id=f"id-{number}") for number, each in enumerate(signatures(app, 30))]
    for each in many:
        each.apply_async()
    expected = drained(url, (queue,), 30)
    assert publish_many(app, many) == [f"id-{number}" for number in range(30)]
    assert drained(url, (queue,), 30) == expected
    app.close()


def test_order_on_rabbitmq_is_kept_over_several_batches(rabbitmq: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ami.celery.bulk_publisher.BATCH_MESSAGES", 64)
    app = plain_app(rabbitmq, **{"x-queue-type": "quorum"})
    published = publish_many(app, signatures(app, 300))
    found = [message["id"] for message in drained(rabbitmq, (app.conf.task_default_queue,), 300)]
    assert found == published
    app.close()


def test_full_queue_refuses_by_name_and_the_refused_can_be_published_again(rabbitmq: str):
    app = plain_app(rabbitmq, **{"x-max-length": 5, "x-overflow": "reject-publish"})
    queue = app.conf.task_default_queue
    with pytest.raises(UnconfirmedTasks) as raised:
        publish_many(app, signatures(app, 12))
    confirmed, refused = raised.value.confirmed, raised.value.unconfirmed
    assert (len(confirmed) + len(refused), len(confirmed) >= 5, bool(refused)) == (12, True, True)
    assert dict(ids(rabbitmq, queue, len(confirmed))) == dict.fromkeys(confirmed, 1)
    while refused:  # The queue holds five of them.
        try:
            publish_many(app, refused)
            left = []
        except UnconfirmedTasks as error:
            left = error.unconfirmed
        taken = [each.id for each in refused if each.id not in {one.id for one in left}]
        assert dict(ids(rabbitmq, queue, len(taken))) == dict.fromkeys(taken, 1)
        refused = left
    app.close()


def test_connection_cut_in_the_middle_loses_nothing(rabbitmq: str):
    app = plain_app(rabbitmq, **{"x-queue-type": "quorum"})
    publish_many(app, signatures(app, 1))  # Declares the queue.
    with breaking(rabbitmq, 60_000) as relay:
        set_broker(app, {"broker_write_url": relay.url})
        published = publish_many(app, signatures(app, 300))
        assert relay.has_broken
    found = ids(rabbitmq, app.conf.task_default_queue, 301)
    assert found.keys() >= set(published)
    assert len(found) == 301, "doubles have the ids of what was published"
    app.close()


def test_frozen_broker_ends_the_wait_and_names_the_unconfirmed(rabbitmq: str, monkeypatch: pytest.MonkeyPatch):
    app = plain_app(rabbitmq, **{"x-queue-type": "quorum"})
    monkeypatch.setattr("ami.celery.bulk_publisher.BATCH_MESSAGES", 50)
    first = publish_many(app, signatures(app, 1))
    with breaking(rabbitmq, 90_000, freezes=True) as relay:
        set_broker(app, {"broker_write_url": relay.url})
        monkeypatch.setattr(confirming_connection, "CONFIRM_TIMEOUT_SECONDS", 2.0)
        with pytest.raises(UnconfirmedTasks) as raised:
            publish_many(app, signatures(app, 300))
        assert relay.has_broken
    assert isinstance(raised.value.__cause__, Unconfirmed)
    assert raised.value.confirmed
    set_broker(app, {"broker_write_url": rabbitmq})
    monkeypatch.undo()
    again = publish_many(app, raised.value.unconfirmed)
    found = ids(rabbitmq, app.conf.task_default_queue, 301)
    assert set(found) == {*first, *raised.value.confirmed, *again}
    assert len(found) == 301
    app.close()
