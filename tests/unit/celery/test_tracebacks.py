"""A finished task keeps nothing of its variables, however it ended, also before the garbage collector runs."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from billiard.einfo import ExceptionInfo
from celery.app.task import Task as CeleryTask
from celery.app.trace import build_tracer
from celery.concurrency.solo import TaskPool as Solo
from celery.concurrency.thread import TaskPool as Threads
from celery.exceptions import Ignore, Reject
from celery.utils import uuid
from kombu.serialization import dumps

from ami.celery import tracebacks
from ami.celery.request import Request
from ami.governor import memory_limit
from tests.support.place import until

NAME = "ami.jobs.tasks.audit_let_go"


class Body(bytearray):
    """A large one; it can be watched, as plain bytes cannot."""


class Work:
    """What a task does with a body; ``kept`` are the bodies that are still there."""

    def __init__(self, end: Callable[[Any], None]) -> None:
        self._end = end
        self._seen: list[weakref.ref[Body]] = []

    def __call__(self, task: Any) -> None:
        body = Body(1024)
        self._seen.append(weakref.ref(body))
        self._end(task)

    @property
    def kept(self) -> list[Body]:
        assert self._seen, "the task did not run"
        return [body for ref in self._seen if (body := ref()) is not None]


def succeed(_: Any) -> None:
    pass


def fail(_: Any) -> None:
    raise ValueError("wrong")


def fail_from_another(_: Any) -> None:
    try:
        fail_while_another(_)
    except LookupError as error:
        raise ValueError("wrong") from error


def fail_while_another(_: Any) -> None:
    body = Body(1024)
    try:
        raise KeyError(len(body))
    except KeyError:
        raise LookupError from None


def fail_with_many(_: Any) -> None:
    try:
        fail(_)
    except ValueError as error:
        raise ExceptionGroup("many", [error]) from None


def fail_and_remember(_: Any) -> None:
    last = None
    try:
        fail_while_another(_)
    except LookupError as error:
        last = error
    raise last


def be_retried(_: Any) -> None:
    raise OSError("away")


def retry(task: Any) -> None:
    try:
        fail(task)
    except ValueError as error:
        raise task.retry(exc=error, countdown=5) from error


def be_ignored(_: Any) -> None:
    raise Ignore


def be_rejected(_: Any) -> None:
    raise Reject("no")


def run_out_of_memory(_: Any) -> None:
    raise MemoryError("no more")


ENDS = pytest.mark.parametrize(
    "end",
    [
        succeed,
        fail,
        fail_from_another,
        fail_with_many,
        fail_and_remember,
        be_retried,
        retry,
        be_ignored,
        be_rejected,
        run_out_of_memory,
    ],
)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def task_of(app: Any, sent: list[dict[str, Any]]):
    """Register the task that does some work."""

    def task_of(work: Work) -> Any:
        def run(self: Any) -> None:
            work(self)

        task = app._task_from_fun(
            run, name=NAME, bind=True, autoretry_for=(OSError,), max_retries=3, ignore_result=True, acks_late=True
        )
        task.__trace__ = build_tracer(NAME, task, app=app)
        return task

    yield task_of
    app.tasks.pop(NAME, None)


def request_of(app: Any, task: Any) -> Request:
    message = app.amqp.as_task_v2(uuid(), NAME, (), {})
    content_type, content_encoding, body = dumps(message.body, serializer="json")
    delivery = Mock(
        headers={**message.headers, "ignore_result": True},
        body=body,
        payload=message.body,
        content_type=content_type,
        content_encoding=content_encoding,
        delivery_info={"exchange": "antenna", "routing_key": "antenna"},
        properties=message.properties,
        delivery_tag=1,
    )
    return Request(delivery, app=app, task=task, on_ack=Mock(), on_reject=Mock(), eventer=None, connection_errors=())


def told_of_memory() -> ExceptionInfo:
    try:
        raise MemoryError
    except MemoryError:
        return ExceptionInfo()


@ENDS
def test_task_that_is_over_keeps_no_body_in_a_child(app: Any, task_of: Any, end: Callable[[Any], None]):
    work = Work(end)
    request = {"args": (), "kwargs": {}, "is_eager": False, "ignore_result": True, "delivery_info": {}}
    outcome = task_of(work).__trace__(uuid(), (), {}, request)
    assert work.kept == []
    assert outcome.info is None or outcome.retval.traceback, "and it says what went wrong"


@ENDS
@pytest.mark.parametrize("pool", [Solo, Threads])
def test_task_that_is_over_keeps_no_body_in_the_worker_itself(
    app: Any, task_of: Any, end: Callable[[Any], None], pool: Any
):
    work = Work(end)
    request, running = request_of(app, task_of(work)), pool(1, app=app)
    running.start()
    request.execute_using_pool(running)
    until(lambda: request.on_ack.called or request.on_reject.called, 10, "the message is settled")
    running.on_stop()
    assert work.kept == []


def test_task_that_reached_its_ceiling_keeps_no_body(app: Any, task_of: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_limit, "allowed_kib", 4096)
    work = Work(run_out_of_memory)
    request = {"args": (), "kwargs": {}, "is_eager": False, "ignore_result": True, "delivery_info": {}}
    outcome = task_of(work).__trace__(uuid(), (), {}, request)
    assert outcome.info.state == "RETRY"
    assert work.kept == []


def test_message_that_is_buried_for_its_memory_is_not_kept_by_its_error(app: Any, task_of: Any):
    request = request_of(app, task_of(Work(succeed)))
    reference = weakref.ref(request)
    request.on_failure(told_of_memory())
    assert request.on_reject.called
    del request
    assert reference() is None


def test_error_keeps_its_words_and_its_cause():
    with pytest.raises(ValueError, match="wrong") as raised:
        fail_from_another(None)
    error = raised.value
    tracebacks.clear(error)
    assert (str(error), type(error.__cause__), error.__traceback__) == ("wrong", LookupError, None)


def test_other_objects_are_left_alone():
    assert [tracebacks.clear(value) for value in (None, 1, "text", CeleryTask)] == [None] * 4
