"""Every message of ``publish_many`` is that of ``apply_async``, whatever a publisher chooses or replaces."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import pytest
from celery import Celery, Signature, Task
from celery.app.trace import trace_task
from celery.local import Proxy
from kombu import Exchange, Queue
from kombu.common import Broadcast
from kombu.transport import virtual

from ami.celery.app import AntennaCelery
from ami.celery.bulk_publisher import publish_many

NOW = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
TOPIC, DIRECT = Exchange("topic", "topic"), Exchange("direct", "direct", delivery_mode=1)
QUEUES = [
    Queue("bulk", DIRECT, "bulk"),
    Queue("of-topic", TOPIC, "a.b"),
    Broadcast("everyone", queue="everyone"),
    Queue("without", Exchange(""), "key"),
]
ROUTES: dict[str, dict[str, Any]] = {
    "none": {},
    "queue": {"queue": "of-topic"},
    "direct-key": {"queue": "bulk", "routing_key": "other"},
    "broadcast": {"queue": "everyone"},
    "exchange": {"exchange": "elsewhere", "routing_key": "there"},
    "exchange-type": {"exchange": "elsewhere", "exchange_type": "topic", "routing_key": "a.b"},
    "declares": {"queue": "of-topic", "declare": [QUEUES[0], TOPIC]},
    "priority": {"queue": "bulk", "priority": 3, "delivery_mode": 1},
    "serializer": {"queue": "bulk", "serializer": "yaml", "compression": "zlib"},
    "retry": {"queue": "bulk", "retry": False, "retry_policy": {"max_retries": 1}, "timeout": 9, "confirm_timeout": 8},
    "headers": {"queue": "bulk", "headers": {"routed": 1}},
    "property": {"queue": "bulk", "user_id": "guest"},
    "mandatory": {"queue": "bulk", "mandatory": True},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "expires": {"expires": 0.25},
    "expired": {"expires": (NOW - timedelta(hours=1)).replace(tzinfo=None)},
    "countdown": {"countdown": 5},
    "eta": {"eta": LATER},
    "headers": {"headers": {"origin": "person", "id": "x", "nested": {"a": [1]}}, "priority": 7},
    "limits": {"time_limit": 20, "soft_time_limit": 10, "shadow": "shown", "root_id": "r", "parent_id": "p"},
    "serializer": {"serializer": "yaml", "compression": "bzip2", "delivery_mode": 1},
    "result": {"ignore_result": False},
    "queue-object": {"queue": Queue("of-topic", TOPIC, "a.b")},
    "exchange-type": {"exchange": "elsewhere", "routing_key": "a.b", "exchange_type": "topic"},
    "declare": {"declare": [QUEUES[1]]},
    "chord": {"chord": {"task": "bulk.plain", "args": [], "kwargs": {}, "options": {"task_id": "c"}}},
    "chain": {"chain": [{"task": "bulk.plain", "args": [], "kwargs": {}, "options": {"task_id": "c"}}]},
    "link": {"link": [Signature("bulk.plain", options={"task_id": "l"})]},
    "stamps": {"stamped_headers": ["by"], "by": "me"},
    "retries": {"retries": 2, "reply_to": "there"},
    "unknown": {"user_id": "guest"},
}


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reaches the channel of a broker."""
    found: list[Any] = []

    def publish(self: Any, message: Any, exchange: Any, routing_key: Any, **how: Any) -> None:
        kept = {name: value for name, value in how.items() if name not in ("timeout", "confirm_timeout")}
        body = message["body"]
        found.append(
            ({**message, "body": body if isinstance(body, bytes) else body.encode()}, exchange, routing_key, kept)
        )

    monkeypatch.setattr(virtual.Channel, "basic_publish", publish)
    return found


def nothing(*args: Any, **kwargs: Any) -> None:
    pass


def plain(kind: type[Celery] = Celery, **settings: Any) -> Any:
    """Return an application whose clock stands still."""
    app: Any = kind(uuid.uuid4().hex, set_as_current=False)
    app.conf.update(
        broker_read_url="memory://",
        broker_write_url="memory://",
        result_backend="cache+memory://",
        task_queues=QUEUES,
        task_default_queue="bulk",
        timezone="America/New_York",
        accept_content=["json", "yaml"],
        task_routes={f"bulk.{name}": route for name, route in ROUTES.items()},
        **settings,
    )
    app.now = lambda: NOW.astimezone(app.timezone)

    for each in ROUTES:
        app.task(name=f"bulk.{each}", shared=False)(nothing)
    app.task(name="bulk.plain", shared=False)(nothing)
    own = app.task(name="bulk.own", shared=False, ignore_result=True, compression="zlib")(nothing)
    for name, value in {"queue": "of-topic", "priority": 4, "expires": 60, "time_limit": 9, "mandatory": True}.items():
        setattr(own, name, value)
    return app


@pytest.fixture
def app() -> Iterator[Celery]:
    made = plain()
    yield made
    made.close()


def both(app: Celery, published: list[Any], made: Any) -> tuple[list[Any], list[Any]]:
    """Return the messages of both calls for the signatures that ``made`` returns."""
    for each in made():
        each.apply_async()
    one_by_one = published.copy()
    published.clear()
    publish_many(app, made())
    together = published.copy()
    published.clear()
    return one_by_one, together


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("task", ["plain", "own"])
def test_message_with_these_options_equals_that_of_apply_async(
    app: Celery, published: list[Any], task: str, options: dict[str, Any]
):
    def made() -> list[Signature]:
        return [app.tasks[f"bulk.{task}"].signature((1, "ü"), {"b": [2.5]}, task_id="one", **options)]

    one_by_one, together = both(app, published, made)
    assert len(one_by_one) == 1
    assert together == one_by_one


@pytest.mark.parametrize("route", ROUTES)
def test_message_of_a_route_equals_that_of_apply_async(app: Celery, published: list[Any], route: str):
    one_by_one, together = both(app, published, lambda: [app.tasks[f"bulk.{route}"].signature(task_id="one")])
    assert len(one_by_one) == 1
    assert together == one_by_one


def test_message_published_by_a_task_names_it_as_parent(published: list[Any]):
    app = plain(task_inherit_parent_priority=True)
    results: list[Any] = []

    @app.task(name="bulk.parent", shared=False, bind=True)
    def parent(self: Task, at_once: bool) -> None:
        each = app.tasks["bulk.plain"].signature(task_id="one")
        if at_once:
            publish_many(app, [each])
        else:
            each.apply_async()
        results.append([child.id for child in self.request.children])

    request = {"root_id": "root", "delivery_info": {"priority": 6}, "id": "parent", "ignore_result": True}
    for at_once in (False, True):
        trace_task(parent, "parent", (at_once,), {}, {**request, "children": []}, app=app)
    one_by_one, together = published
    assert one_by_one == together
    assert one_by_one[0]["headers"]["root_id"] == "root"
    assert results == [["one"], ["one"]]
    app.close()


class Loud(Task):
    """A task that adds something to each of its messages."""

    abstract = True

    def apply_async(self, *args: Any, **options: Any) -> Any:
        return super().apply_async(*args, **options, headers={"loud": True})


class LoudApp(Celery):
    def send_task(self, *args: Any, **options: Any) -> Any:
        return super().send_task(*args, **options, headers={"loud": True})


def loud(function: Any) -> Any:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options, headers={"loud": True})

    return call


@pytest.mark.parametrize("how", ["subclass", "instance", "patched task", "app", "app instance", "patched app", "amqp"])
def test_replaced_calls_are_made_for_each_task(published: list[Any], monkeypatch: pytest.MonkeyPatch, how: str):
    app = plain(LoudApp if how == "app" else Celery)
    task = app.tasks["bulk.plain"]
    match how:
        case "subclass":
            task = app.task(name="bulk.loud", base=Loud, shared=False)(nothing)
        case "instance":
            monkeypatch.setattr(task, "apply_async", loud(task.apply_async), raising=False)
        case "patched task":
            monkeypatch.setattr(Task, "apply_async", loud(Task.apply_async))
        case "app instance":
            monkeypatch.setattr(app, "send_task", loud(app.send_task), raising=False)
        case "patched app":
            monkeypatch.setattr(Celery, "send_task", loud(Celery.send_task))
        case "amqp":
            monkeypatch.setattr(app.amqp, "send_task_message", loud(app.amqp.send_task_message))
    publish_many(app, [task.signature(task_id="one"), task.signature(task_id="two")])
    assert [message["headers"].get("loud") for message, *_ in published] == [True, True]
    app.close()


def test_proxy_of_the_current_application_stands_for_it(published: list[Any]):
    app = plain(AntennaCelery)
    publish_many(Proxy(lambda: app), [app.tasks["bulk.plain"].signature(task_id="one")])
    assert [message["headers"]["id"] for message, *_ in published] == ["one"]
    app.close()


def test_subclass_of_the_projects_application_is_called_for_each_task(published: list[Any]):
    class Louder(AntennaCelery):
        def send_task(self, *args: Any, **options: Any) -> Any:
            options["headers"] = {**(options.get("headers") or {}), "loud": True}
            return super().send_task(*args, **options)

    for kind, found in ((AntennaCelery, None), (Louder, True)):
        app = plain(kind)
        publish_many(app, [app.tasks["bulk.plain"].signature(task_id="one")])
        assert published.pop()[0]["headers"].get("loud") is found
        app.close()
