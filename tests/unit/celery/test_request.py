"""How a failed message is settled. What the broker and a real child process do of it: tests/acceptance."""

from errno import ENOMEM
from typing import Any
from unittest.mock import Mock

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import Retry
from celery.utils import uuid
from celery.worker import state
from kombu.serialization import dumps

from ami.celery.request import Request, TaskMemoryError
from ami.celery.task import Task
from ami.governor import memory_limit
from ami.governor.errors import CeilingReached, MemoryLimitExceeded

NAME = "ami.jobs.tasks.audit_settled"


@pytest.fixture
def request_of(app: Any, make_task: Any):
    """Make the request of one delivered message, and record what becomes of it."""

    def request_of(retries: int = 0, **options: Any) -> Request:
        task = make_task(NAME, **{"max_retries": 1, **options})
        sent = app.amqp.as_task_v2(uuid(), NAME, (), {}, retries=retries)
        content_type, content_encoding, body = dumps(sent.body, serializer="json")
        message = Mock(
            headers=sent.headers,
            body=body,
            payload=sent.body,
            content_type=content_type,
            content_encoding=content_encoding,
            delivery_info={"exchange": "antenna", "routing_key": "antenna"},
            properties=sent.properties,
            delivery_tag=1,
        )
        return Request(message, app=app, task=task, on_ack=Mock(), on_reject=Mock(), eventer=None, connection_errors=())

    return request_of


def raised(error: BaseException) -> ExceptionInfo:
    try:
        raise error
    except BaseException:
        return ExceptionInfo()


def settled(request: Request) -> str:
    """Acknowledged, buried, returned, or open."""
    if request.on_reject.called:
        return "returned" if request.on_reject.call_args.args[-1] else "buried"
    return "acknowledged" if request.on_ack.called else "open"


@pytest.mark.parametrize("error", [MemoryError("no more"), MemoryError()])
def test_memory_error_buries_its_task_and_does_not_end_the_worker(request_of: Any, caplog: Any, error: MemoryError):
    request = request_of()
    request.on_failure(raised(error))
    assert settled(request) == "buried"
    assert TaskMemoryError.__name__ in caplog.text
    assert (str(error) or "the task ran out of memory") in caplog.text


def test_task_memory_error_is_none_that_celery_would_stop_for():
    assert not issubclass(TaskMemoryError, MemoryError)


@pytest.fixture
def lost(request_of: Any, caplog: Any):
    """Settle a request whose process is lost, and tell how, and whether that was charged to the task."""

    def lost(ended_by: str, **marks: Any) -> tuple[str, bool]:
        request = request_of(max_retries=0)
        vars(request).update(marks)
        request.on_failure(raised(WorkerLostError(f"Worker exited prematurely: {ended_by} Job: 3.")))
        return settled(request), WorkerLostError.__name__ in caplog.text

    return lost


@pytest.mark.parametrize("flag", ["should_stop", "should_terminate"])
@pytest.mark.parametrize("exit_code", [0, 1, 75, True])
@pytest.mark.parametrize("ended_by", ["signal 9 (SIGKILL)", "signal 15 (SIGTERM)", "exitcode 0"])
def test_process_lost_while_its_worker_stops_is_not_charged_to_its_task(
    lost: Any, monkeypatch: pytest.MonkeyPatch, flag: str, exit_code: int, ended_by: str
):
    monkeypatch.setattr(state, flag, exit_code)
    assert lost(ended_by) == ("returned", False)


@pytest.mark.parametrize("flag", [None, False])
@pytest.mark.parametrize(
    ("ended_by", "expected"),
    [
        ("signal 15 (SIGTERM)", ("returned", False)),
        ("signal 9 (SIGKILL)", ("buried", True)),
        ("signal 11 (SIGSEGV)", ("buried", True)),
        ("exitcode 0", ("buried", True)),
        ("exitcode 15", ("buried", True)),
    ],
)
def test_process_lost_while_its_worker_runs_is_charged_unless_sigterm_ended_it(
    lost: Any, monkeypatch: pytest.MonkeyPatch, flag: Any, ended_by: str, expected: tuple[str, bool]
):
    monkeypatch.setattr(state, "should_stop", flag)
    assert lost(ended_by) == expected


def test_cancelled_task_whose_process_gets_sigterm_does_not_run_again(lost: Any):
    assert lost("signal 15 (SIGTERM)", is_cancelled=True) == ("acknowledged", False)


def test_ordinary_failure_is_buried(request_of: Any):
    request = request_of()
    request.on_failure(raised(ValueError("wrong")))
    assert settled(request) == "buried"


def test_hard_time_limit_is_retried_while_retries_are_left(request_of: Any, sent: list[dict[str, Any]]):
    request = request_of(retries=0, max_retries=1, default_retry_delay=7)
    request.on_failure(raised(TimeLimitExceeded(5)))
    assert settled(request) == "acknowledged"
    assert [(message["name"], message["retries"], message["task_id"]) for message in sent] == [(NAME, 1, request.id)]


@pytest.mark.parametrize("limits", [{"retries": 1, "max_retries": 1}, {"retries": 0, "max_retries": 0}])
def test_hard_time_limit_without_retries_left_is_buried_and_never_returned(
    request_of: Any, sent: list[dict[str, Any]], limits: dict[str, int]
):
    request = request_of(**limits)
    request.on_failure(raised(TimeLimitExceeded(5)))
    assert settled(request) == "buried"
    assert sent == []


def test_hard_time_limit_whose_retry_cannot_be_published_is_buried(request_of: Any, monkeypatch: pytest.MonkeyPatch):
    request = request_of()
    monkeypatch.setattr(Request, "_retry_worker_lost", lambda *_: False)
    request.on_failure(raised(TimeLimitExceeded(5)))
    assert settled(request) == "buried"


def test_hard_time_limit_of_a_settled_message_is_only_logged(request_of: Any, caplog: Any):
    request = request_of(retries=1)
    request.on_failure(raised(TimeLimitExceeded(5)))
    rejected = request.on_reject.call_count
    request.on_timeout(soft=False, timeout=5)
    assert request.on_reject.call_count == rejected
    (record,) = [record for record in caplog.records if record.getMessage() == "Hard time limit exceeded"]
    assert (record.task, record.task_id, record.limit_seconds) == (NAME, request.id, 5)


def beyond_its_ceiling() -> CeilingReached:
    return CeilingReached(exc=MemoryLimitExceeded(NAME, 0, 4096))


LIMITS = pytest.mark.parametrize(
    "error", [MemoryLimitExceeded(NAME, 9000, 4096), beyond_its_ceiling()], ids=["ended", "ceiling"]
)


@LIMITS
def test_memory_limit_is_retried_once_while_retries_are_left(
    request_of: Any, sent: list[dict[str, Any]], error: Exception
):
    request = request_of(retries=0, max_retries=1, default_retry_delay=7)
    request.on_failure(raised(error))
    assert settled(request) == "acknowledged"
    assert not request.on_reject.called
    assert [(message["name"], message["retries"], message["task_id"]) for message in sent] == [(NAME, 1, request.id)]


@LIMITS
@pytest.mark.parametrize(("retries", "seconds"), [(0, 1), (1, 2), (2, 4), (12, 180)])
def test_memory_limit_is_retried_soon_and_says_when(
    request_of: Any, sent: list[dict[str, Any]], caplog: Any, error: Exception, retries: int, seconds: int
):
    caplog.set_level("INFO")
    request = request_of(retries=retries, max_retries=None)
    request.on_failure(raised(error))
    assert [message["countdown"] for message in sent] == [seconds]
    assert f"retry: Retry in {seconds}s: " in caplog.text
    assert request.task.default_retry_delay == 180


def test_memory_ceiling_tells_no_size_and_no_time_that_are_unknown():
    error = beyond_its_ceiling()
    assert "None" not in f"{error}"
    assert "worker retries or buries" in f"{error}"
    assert "0," not in f"{error!r} {error.exc!r} {error.exc}"
    assert "asked for more memory than it was given" in f"{error.exc}"


@LIMITS
@pytest.mark.parametrize("limits", [{"retries": 1, "max_retries": 1}, {"retries": 0, "max_retries": 0}])
def test_memory_limit_without_retries_left_is_buried_with_what_was_too_much(
    request_of: Any, sent: list[dict[str, Any]], caplog: Any, error: Exception, limits: dict[str, int]
):
    request = request_of(**limits)
    request.on_failure(raised(error))
    assert settled(request) == "buried"
    assert request.on_reject.call_count == 1
    assert sent == []
    assert "one process of this worker may have 4096 KiB" in caplog.text


@LIMITS
def test_memory_limit_whose_retry_cannot_be_published_is_buried(
    request_of: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    request = request_of()
    monkeypatch.setattr(Request, "_retry_worker_lost", lambda *_: False)
    request.on_failure(raised(error))
    assert settled(request) == "buried"


def test_ordinary_retry_is_not_a_failure_and_published_once(request_of: Any, sent: list[dict[str, Any]]):
    request = request_of()
    request.on_failure(raised(Retry(exc=ValueError("later"))))
    assert settled(request) == "acknowledged"
    assert sent == []


@pytest.fixture(params=[MemoryError("no more"), OSError(ENOMEM, "no more")], ids=["of Python", "of the system"])
def greedy(app: Any, request: pytest.FixtureRequest):
    """A task that the kernel refuses memory."""

    class Greedy(Task):
        def run(self) -> None:
            raise request.param

    task = app.register_task(Greedy())
    yield task
    app.tasks.pop(task.name)


def delivered(task: Task) -> None:
    """Run the task as a worker does."""
    task.push_request(called_directly=False)
    try:
        task()
    finally:
        task.pop_request()


def test_memory_error_below_a_ceiling_says_what_the_process_was_given(greedy: Task, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_limit, "allowed_kib", 4096)
    with pytest.raises(CeilingReached) as reached:
        delivered(greedy)
    assert isinstance(reached.value.exc, MemoryLimitExceeded)
    assert reached.value.exc.args == (greedy.name, 0, 4096)
    assert isinstance(reached.value.__cause__, (MemoryError, OSError))


def test_memory_error_without_a_ceiling_is_the_tasks_own(greedy: Task):
    with pytest.raises((MemoryError, OSError), match="no more"):
        delivered(greedy)


def test_task_called_directly_is_a_function_like_any_other(greedy: Task, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_limit, "allowed_kib", 4096)
    with pytest.raises((MemoryError, OSError), match="no more"):
        greedy()


@pytest.mark.parametrize(("ignore_result", "stored"), [(True, 0), (False, 1)])
def test_incident_5_task_ended_for_a_lost_connection_stores_no_unread_result(
    request_of: Any, monkeypatch: pytest.MonkeyPatch, ignore_result: bool, stored: int
):
    request, backend = request_of(ignore_result=ignore_result), Mock()
    request._ignore_result = ignore_result
    monkeypatch.setattr(type(request.task), "backend", backend)
    request.time_start, request.worker_pid = 1.0, 1
    request.cancel(Mock())
    assert backend.mark_as_retry.call_count == stored, "it may be as far away as the broker"
