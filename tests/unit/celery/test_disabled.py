"""Messages that may be disabled are marked for the process that runs them, and the mark goes nowhere else."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.app.task import Context
from celery.exceptions import Ignore, Reject
from django.db import OperationalError

from ami.celery import database_away, disabled, worker_records


class Records:
    """What was asked to be set aside; answers whether it is disabled."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[tuple[str, str]]()

    def set_aside(self, task: str, job: str, _: Any) -> bool:
        self.asked.append((task, job))
        if isinstance(self.answer, Exception):
            raise self.answer
        return bool(self.answer)


@pytest.fixture(autouse=True)
def nothing_disabled() -> Iterator[None]:
    yield
    disabled.apply(frozenset(), frozenset())


def request(name: str = "a.task", **headers: Any) -> Any:
    message = SimpleNamespace(headers=headers, properties={}, content_type="application/json", content_encoding="utf-8")
    return SimpleNamespace(name=name, message=message, body=b"[[1], {}, {}]", delivery_info={"routing_key": "antenna"})


def task(values: dict[str, Any]) -> Any:
    def run(job_id: Any = None) -> None: ...

    class Task:
        name = "a.task"

    made: Any = Task()
    made.request, made.run = Context(values), run
    return made


def test_nothing_is_marked_while_nothing_is_disabled_and_a_foreign_mark_is_dropped():
    values = {"id": "1"}
    assert disabled.marked(request(), values) is values
    assert disabled.marked(request(), {"id": "1", disabled.MARK: {"jobs": ()}}) == values


def test_mark_holds_the_message_and_is_no_header_of_a_retry(monkeypatch: pytest.MonkeyPatch):
    disabled.apply(frozenset(), frozenset({"7"}))
    records = Records(False)
    monkeypatch.setattr(worker_records, "_records", records)
    values = disabled.marked(request(id="1", **{disabled.MARK: "nested"}), {"id": "1"})
    assert values[disabled.MARK]["body"] == b"[[1], {}, {}]"
    assert disabled.MARK not in values[disabled.MARK]["headers"]
    made = task(values)
    disabled.hold(made, (8,), {})
    assert records.asked == [], "another job"
    assert disabled.MARK not in str(vars(made.request))


@pytest.mark.parametrize(
    ("job", "asked"),
    [(7, "7"), ("7", "7"), ("x" * 100, None), ([7], None), (None, None), ("\x00", None), ("٧", None)],
)
def test_only_a_number_is_a_job(monkeypatch: pytest.MonkeyPatch, job: Any, asked: str | None):
    disabled.apply(frozenset(), frozenset({"7"}))
    records = Records(False)
    monkeypatch.setattr(worker_records, "_records", records)
    disabled.hold(task(disabled.marked(request(), {"id": "1"})), (job,), {})
    assert records.asked == ([("a.task", asked)] if asked else [])


def test_disabled_task_is_acknowledged_and_returns_to_its_queue_while_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
):
    disabled.apply(frozenset({"a.task"}), frozenset())
    monkeypatch.setattr(database_away, "PAUSE_SECONDS", 0.0)
    for answer, raised in ((True, Ignore), (OperationalError("away"), Reject)):
        monkeypatch.setattr(worker_records, "_records", Records(answer))
        with pytest.raises(raised):
            disabled.hold(task(disabled.marked(request(), {"id": "1"})), (), {})
