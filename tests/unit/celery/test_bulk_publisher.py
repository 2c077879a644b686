"""Many tasks published at once are what ``apply_async`` publishes one by one, in batches of bounded size."""

import uuid
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Signature
from celery.signals import after_task_publish, before_task_publish
from kombu.exceptions import OperationalError

from ami.celery import bulk_publisher
from ami.celery.bulk_publisher import BATCH_MESSAGES, UnconfirmedTasks, publish_many
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.bulk_messages import AUDIT, RESULT, drained, many_kinds
from tests.support.place import celery_at
from tests.support.soak import soak


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"objectstore+file://{tmp_path}/broker"


@pytest.fixture
def there(app: Any, url: str) -> Iterator[Any]:
    """The application, publishing to a folder of its own."""
    with celery_at(url):
        app.declare_everything()
        yield app


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commands each commit to a store had."""
    counted: list[int] = []
    commit = Store.commit

    def counting(self: Store, commands: Any, **options: Any) -> Any:
        counted.append(len(commands))
        return commit(self, commands, **options)

    monkeypatch.setattr(Store, "commit", counting)
    return counted


def test_messages_equal_those_of_apply_async_one_by_one(there: Any, url: str):
    queues = there.topology.queues
    for each in many_kinds(there):
        each.apply_async()
    expected = drained(url, queues, 11)
    assert publish_many(there, many_kinds(there))[:10] == [f"id-{number}" for number in range(10)]
    found = drained(url, queues, 11)
    assert len(found) == len(expected) == 11
    for one, other in zip(found, expected, strict=True):
        if one["id"] not in ("id-9", "id-10"):  # Their bodies have signatures with ids of their own.
            assert one == other
        assert one["headers"].keys() == other["headers"].keys()


def test_a_batch_is_one_commit_per_queue_and_keeps_its_order(there: Any, url: str, commits: list[int]):
    many = [there.tasks[AUDIT if number % 2 else RESULT].signature(kwargs=_kwargs(number)) for number in range(60)]
    ids = publish_many(there, many)
    assert commits == [30, 30]
    found = [message["id"] for message in drained(url, there.topology.queues, 60)]
    assert sorted(found) == sorted(ids)
    for first in (0, 1):
        of_queue = [each for each in found if each in ids[first::2]]
        assert of_queue == ids[first::2]


def _kwargs(number: int) -> dict[str, Any]:
    return {} if number % 2 else {"job_id": number, "result_key": "k", "reply_subject": "s"}


def test_nothing_is_published_for_an_empty_list(there: Any, commits: list[int]):
    assert publish_many(there, []) == []
    assert publish_many(there, iter(())) == []
    assert commits == []


def test_generator_is_consumed_one_batch_at_a_time(there: Any, commits: list[int]):
    count, most = soak(2_500, 10_000), 0
    alive: dict[int, weakref.ref[Signature]] = {}  # Signatures have no hash.

    def signatures() -> Iterator[Signature]:
        nonlocal most
        for number in range(count):
            each = there.tasks[AUDIT].s()
            alive[number] = weakref.ref(each, lambda _, number=number: alive.pop(number))  # type: ignore[misc]
            most = max(most, len(alive))
            yield each

    assert len(set(publish_many(there, signatures()))) == count
    assert most <= BATCH_MESSAGES + 2
    assert (max(commits), sum(commits)) == (BATCH_MESSAGES, count)


def test_batch_ends_at_its_size_in_bytes(there: Any, commits: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk_publisher, "BATCH_BYTES", 20_000)
    arguments = {"job_id": 1, "result_key": "k" * 9_000, "reply_subject": "s"}
    publish_many(there, [there.tasks[RESULT].s(**arguments) for _ in range(7)])
    assert commits == [3, 3, 1]


def test_failed_storage_names_what_is_not_stored(there: Any, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk_publisher, "BATCH_MESSAGES", 4)
    there.conf.task_publish_retry = False
    commit, calls = Store.commit, 0

    def failing(self: Store, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StorageError("the disk is full")
        return commit(self, *args, **kwargs)

    monkeypatch.setattr(Store, "commit", failing)
    try:
        with pytest.raises(UnconfirmedTasks, match="confirmed 4 of 10 tasks.*disk is full") as raised:
            publish_many(there, (there.tasks[AUDIT].s() for _ in range(10)))
    finally:
        there.conf.task_publish_retry = True
    assert isinstance(raised.value, OperationalError), "what every caller is prepared for"
    again = publish_many(there, raised.value.unconfirmed)
    assert [each.id for each in raised.value.unconfirmed] == again
    found = [message["id"] for message in drained(url, there.topology.queues, 10)]
    assert found == raised.value.confirmed + again


def test_failed_commit_is_tried_again_with_the_same_ids(there: Any, url: str, monkeypatch: pytest.MonkeyPatch):
    commit, calls = Store.commit, 0

    def answer_lost(self: Store, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        answers = commit(self, *args, **kwargs)
        if calls == 1:
            raise StorageError("the answer was lost")
        return answers

    monkeypatch.setattr(Store, "commit", answer_lost)
    ids = publish_many(there, [there.tasks[AUDIT].s() for _ in range(5)])
    assert {message["id"] for message in drained(url, there.topology.queues, 5)} == set(ids)


def test_signature_that_cannot_be_published_stops_after_those_before(there: Any, url: str):
    good, bad = there.tasks[AUDIT].s(), there.tasks[AUDIT].s(unexpected=1)
    with pytest.raises(TypeError, match="unexpected"):
        publish_many(there, [good, good.clone(), bad, good.clone()])
    assert len(drained(url, there.topology.queues, 2)) == 2


def test_signals_are_sent_when_a_message_is_made_before_it_is_stored(there: Any, commits: list[int]):
    seen: list[tuple[str, str, int]] = []

    def before(headers: Any = None, **_: Any) -> None:
        seen.append(("before", headers["id"], len(commits)))

    def after(headers: Any = None, **_: Any) -> None:
        seen.append(("after", headers["id"], len(commits)))

    before_task_publish.connect(before)
    after_task_publish.connect(after)
    try:
        ids = publish_many(there, [there.tasks[AUDIT].s() for _ in range(2)])
    finally:
        before_task_publish.disconnect(before)
        after_task_publish.disconnect(after)
    assert seen == [(when, task_id, 0) for task_id in ids for when in ("before", "after")]


def test_sent_events_are_those_of_apply_async(there: Any, monkeypatch: pytest.MonkeyPatch):
    events: list[Any] = []

    def publish(kind: str, fields: Any, *_: Any, **__: Any) -> None:
        events.append((kind, fields))

    monkeypatch.setattr(there.amqp._event_dispatcher, "publish", publish)
    there.conf.task_send_sent_event = True
    there.amqp.__dict__.pop("send_task_message", None)
    try:
        there.tasks[AUDIT].signature(task_id="one").apply_async()
        publish_many(there, [there.tasks[AUDIT].signature(task_id="one")])
    finally:
        there.conf.task_send_sent_event = False
    assert events[0] == events[1]
    assert events[0][0] == "task-sent"


def test_eager_tasks_run_and_publish_nothing(there: Any, make_task: Any, commits: list[int]):
    task = make_task(f"eager.{uuid.uuid4().hex}")
    there.conf.task_always_eager = True
    try:
        assert len(publish_many(there, [task.s(), task.s()])) == 2
    finally:
        there.conf.task_always_eager = False
    assert commits == []


def test_transport_without_batches_publishes_one_by_one(app: Any):
    with celery_at(f"memory://localhost/{uuid.uuid4().hex}"):
        ids = publish_many(app, [app.tasks[AUDIT].s() for _ in range(3)])
        with app.connection_for_read() as connection:
            channel = connection.channel()
            found = iter(partial(channel.basic_get, "antenna-housekeeping"), None)
            # Other tests of this process may have left messages there.
            assert [each.headers["id"] for each in found if each.headers["id"] in ids] == ids
