"""``publish_many`` holds no producer of the pool while other code may ask for one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, Signature
from celery.signals import after_task_publish, before_task_publish

from ami.celery.bulk_publisher import publish_many

#: A deadlock would otherwise last until the run is cut off.
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Celery]:
    """A plain application whose pool has one connection, with a task that does nothing."""
    app, url = Celery(str(tmp_path), set_as_current=False), f"objectstore+file://{tmp_path}/broker"
    app.conf.update(broker_read_url=url, broker_write_url=url, broker_pool_limit=1, task_ignore_result=True)

    @app.task(name="lone.nothing", shared=False)
    def nothing() -> None:
        pass

    yield app
    app.close()


def found(app: Celery) -> list[str]:
    """Take what is in the default queue; return the tasks' ids in order."""
    with app.connection_for_read() as connection, connection.channel() as channel:
        return [message.headers["id"] for message in iter(lambda: channel.basic_get("celery", no_ack=True), None)]


def signature(app: Celery, task_id: str, **options: Any) -> Signature:
    return app.tasks["lone.nothing"].signature(task_id=task_id, **options)


def test_signature_that_publishes_itself_finds_the_only_producer(lone: Celery):
    many = [signature(lone, "a"), signature(lone, "b", link=signature(lone, "x")), signature(lone, "c")]
    assert publish_many(lone, many) == ["a", "b", "c"]
    assert sorted(found(lone)) == ["a", "b", "c"]


def test_generator_of_signatures_may_publish(lone: Celery):
    def signatures() -> Iterator[Signature]:
        for name in "ab":
            signature(lone, f"of-{name}").apply_async()
            yield signature(lone, name)

    assert publish_many(lone, signatures()) == ["a", "b"]
    assert sorted(found(lone)) == ["a", "b", "of-a", "of-b"]


@pytest.mark.parametrize("signal", [before_task_publish, after_task_publish], ids=["before", "after"])
def test_receivers_of_a_publish_may_publish(lone: Celery, signal: Any):
    def receiver(headers: Any = None, **_: Any) -> None:
        if headers["id"] in ("a", "b"):
            publish_many(lone, [signature(lone, f"of-{headers['id']}")])

    receive: Callable[..., None] = receiver
    signal.connect(receive)
    try:
        publish_many(lone, [signature(lone, "a"), signature(lone, "b")])
    finally:
        signal.disconnect(receive)
    assert sorted(found(lone)) == ["a", "b", "of-a", "of-b"]


def test_sent_events_are_published_with_the_only_producer(lone: Celery):
    lone.conf.task_send_sent_event = True
    assert publish_many(lone, [signature(lone, "a"), signature(lone, "b")]) == ["a", "b"]
    assert found(lone) == ["a", "b"]
