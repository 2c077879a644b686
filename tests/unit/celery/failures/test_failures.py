"""A failed try is recorded where it failed, and waits in a bounded folder for the database."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import Retry
from celery.signals import task_failure, task_retry

from ami.celery.failures import in_parent, record, spool
from ami.celery.failures.record import Failure
from ami.celery.failures.spool import Spool
from ami.governor.errors import CeilingReached, MemoryLimitExceeded, TaskStalled

FAILED = Failure("id", 0, 0, "task", "error", "ValueError", "x", "", "", "w@a", "a", 1, 1000.0)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Spool:
    made = Spool(tmp_path)
    monkeypatch.setattr(spool, "_spool", made)
    return made


def records(kept: Spool) -> list[Failure]:
    return [failure for _, failure in kept.read(100) if failure is not None]


def request(**fields: Any) -> SimpleNamespace:
    given = {"id": "id", "retries": 1, "hostname": "w@a", "delivery_info": {"redelivered": True}, "is_eager": False}
    return SimpleNamespace(**given | {"antenna_began_at": time.time() - 2} | fields)


class Task:
    """What a signal's sender has; Celery looks senders up by their hash."""

    name = "task"

    def __init__(self, **fields: Any) -> None:
        self.request = request(**fields)


def task(**fields: Any) -> Any:
    return Task(**fields)


def raised(error: Exception) -> Exception:
    try:
        int_of("x") if isinstance(error, LookupError) else fail(error)
    except Exception as found:
        return found
    raise AssertionError


def fail(error: Exception) -> None:
    raise error


def int_of(text: str) -> int:
    import json

    return int(json.loads(text))


def test_failure_is_recorded_with_its_place_in_the_projects_code(kept: Spool):
    error = raised(LookupError())
    task_failure.send(sender=task(), task_id="id", exception=error)
    (found,) = records(kept)
    assert (found.task, found.kind, found.retries, found.delivery, found.node) == ("task", "error", 1, 1, "w@a")
    assert found.exception == "json.decoder.JSONDecodeError"
    assert found.place.startswith("tests/unit/celery/failures/test_failures.py:")
    assert found.place.endswith(" in int_of")
    assert "json/decoder.py" in found.traceback
    assert 1.9 < found.seconds < 60
    assert found.peak_kib > 1000


@pytest.mark.parametrize("fields", [{"id": None}, {"is_eager": True}])
def test_what_the_parent_is_told_of_a_lost_child_and_eager_runs_are_not_recorded(kept: Spool, fields: dict[str, Any]):
    task_failure.send(sender=task(**fields), task_id="id", exception=ValueError("x"))
    assert records(kept) == []


def test_retry_is_recorded_with_its_cause_and_a_memory_ceiling_is_the_parents(kept: Spool):
    cause = raised(ValueError("busy"))
    task_retry.send(sender=task(), request=request(), reason=Retry(exc=cause))
    task_retry.send(sender=task(), request=request(), reason=CeilingReached(exc=MemoryLimitExceeded("t", 0, 1)))
    task_retry.send(sender=task(), request=request(), reason=Retry(message="later"))
    (found,) = records(kept)
    assert (found.kind, found.exception, found.message) == ("retry", "ValueError", "busy")


def test_message_that_cannot_be_read_and_a_long_traceback_are_bounded():
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert record.text_of(Broken()) == "(its message cannot be read: RuntimeError)"
    assert len(record.text_of(ValueError("x" * 10_000))) == 2000
    text = record.shortened("a" * 30_000 + "the end")
    assert len(text) < 20_100
    assert text.endswith("the end")


@pytest.mark.parametrize(
    ("error", "kind", "kib"),
    [
        (TimeLimitExceeded(5), "time limit", 0),
        (WorkerLostError("signal 9"), "process lost", 0),
        (MemoryLimitExceeded("t", 900, 400), "memory", 900),
        (TaskStalled("silent"), "stalled", 0),
        (ValueError("the child has recorded it"), "", 0),
    ],
)
def test_parent_notes_what_ended_the_process(error: Exception, kind: str, kib: int):
    in_parent.take()
    given = {"request_dict": {"retries": 2, "x-delivery-count": 3}, "delivery_info": {"redelivered": True}}
    in_parent.note(
        SimpleNamespace(id="id", name="task", hostname="w@a", worker_pid=9, time_start=time.time() - 5, **given), error
    )
    found = in_parent.take()
    assert [(each.kind, each.retries, each.delivery, each.pid, each.peak_kib) for each in found] == (
        [(kind, 2, 3, 9, kib)] if kind else []
    )


@pytest.mark.parametrize(
    ("given", "delivery"),
    [(3, 3), (2**40, 2**31 - 1), (10**400, 2**31 - 1), (-1, 1), (True, 1), ("7", 1), (float("nan"), 1), ([], 1)],
)
def test_delivery_count_of_a_message_is_bounded(given: Any, delivery: int):
    assert record.delivery_of({"x-delivery-count": given}, {"redelivered": True}) == delivery


def test_record_set_aside_is_not_read_again_and_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool, "MOST_REFUSED", 2)
    kept = Spool(tmp_path)
    for number in range(4):
        kept.add(replace(FAILED, task_id=str(number), failed_at=1000.0 + number))
    for name, _ in kept.read(3):
        kept.set_aside(name)
    assert [failure and failure.task_id for _, failure in Spool(tmp_path).read(10)] == ["3"]
    assert len(list(tmp_path.glob(f"*{spool.REFUSED}"))) == 2


def test_records_are_read_in_order_and_removed(tmp_path: Path):
    kept = Spool(tmp_path)
    for number in (3, 1, 2):
        assert kept.add(replace(FAILED, task_id=str(number), failed_at=1000.0 + number))
    (tmp_path / "1.json").write_text("not one of ours")
    (tmp_path / "2.json").write_text('{"task_id": 1}')
    found = kept.read(4)
    assert [failure and failure.task_id for _, failure in found] == ["1", "2", "3", None]
    kept.remove([name for name, _ in kept.read(100)])
    assert kept.read(100) == []
    assert list(tmp_path.iterdir()) == []


def test_folder_is_bounded_and_a_full_disk_fails_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(spool, "MOST_FILES", 3)
    monkeypatch.setattr(spool, "COUNT_EVERY", 1)
    kept = Spool(tmp_path)
    assert [kept.add(FAILED) for _ in range(4)] == [True, True, True, False]
    assert "3 wait for the database" in caplog.text
    assert not Spool(tmp_path / "missing").add(FAILED)
