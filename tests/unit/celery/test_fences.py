"""Of two runs of one fenced task only the later one commits; other tasks pay nothing."""

from typing import Any

import pytest
from celery import current_task, shared_task
from celery._state import _task_stack
from celery.app.task import Task
from celery.exceptions import Ignore, Retry
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ami.celery import fences
from ami.main.models import BulkDeletion
from ami.main.services.bulk_deletion import advance_deletion
from ami.queues import fence
from ami.queues.models import Fence
from ami.queues.slices import Slice

pytestmark = pytest.mark.django_db


@shared_task(bind=True, name="tests.deletes", fenced=True, fence_by="deletion_id")
def deletes(self: Any, deletion_id: int) -> None:
    advance_deletion(BulkDeletion.objects.get(pk=deletion_id), Slice(self))


class Request:
    """What a worker's process has of a delivered message."""

    def __init__(self, task: Any, task_id: str, **kwargs: Any) -> None:
        self._task, self._id, self._kwargs = task, task_id, kwargs

    def run(self) -> Any:
        """Run as a worker does: neither called directly nor eager."""
        self._task.push_request(id=self._id, hostname="w@a", called_directly=False, is_eager=False, kwargs=self._kwargs)
        _task_stack.push(self._task)
        try:
            return self._task(**self._kwargs)
        finally:
            _task_stack.pop()
            self._task.pop_request()


def test_run_whose_successor_has_begun_does_not_commit(monkeypatch: pytest.MonkeyPatch):
    deletion = BulkDeletion.objects.create(target="captures", pks=[1, 2], done=0)
    seen = []

    def overtaken() -> None:
        if not seen:
            seen.append(1)
            fences._fences.begin(f"{deletes.name}:{deletion.pk}", "a copy", "w@b")  # type: ignore[union-attr]
        check()

    check = fence.check
    monkeypatch.setattr(fence, "check", overtaken)
    with pytest.raises(Ignore):
        Request(deletes, "first", deletion_id=deletion.pk).run()
    deletion.refresh_from_db()
    assert (deletion.done, deletion.finished_at) == (0, None)

    Request(deletes, "second", deletion_id=deletion.pk).run()
    deletion.refresh_from_db()
    assert deletion.done == 2
    assert Fence.objects.get().task_id == "second"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_overtaken", [True, False])
def test_error_of_an_overtaken_run_is_neither_retried_nor_a_failure(
    is_overtaken: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The rescue ends a frozen worker's database connections, so that its runs wake up with an error."""

    def wake_up(key: int) -> None:
        if is_overtaken:
            fences._fences.begin(f"{current_task.name}:{key}", "a copy", "w@b")  # type: ignore[union-attr]
        raise OperationalError("terminating connection due to administrator command")

    fenced: dict[str, Any] = {"fenced": True, "fence_by": "key"}
    retries = shared_task(name=f"tests.retrying_{is_overtaken}", autoretry_for=(OperationalError,), **fenced)
    retrying, failing = retries(wake_up), shared_task(name=f"tests.failing_{is_overtaken}", **fenced)(wake_up)
    published: list[str] = []
    monkeypatch.setattr(Task, "apply_async", lambda task, *_, **__: published.append(task.name))
    with pytest.raises(Ignore if is_overtaken else Retry):
        Request(retrying, "first", key=1).run()
    with pytest.raises(Ignore if is_overtaken else OperationalError):
        Request(failing, "first", key=1).run()
    assert published == ([] if is_overtaken else ["tests.retrying_False"])
    assert ("a later one has begun" in caplog.text) is is_overtaken


def test_fence_costs_one_statement_at_start_and_one_per_transaction():
    @shared_task(name="tests.fenced", fenced=True, fence_by="key")
    def fenced(key: int) -> None:
        with transaction.atomic():
            fences.check()

    @shared_task(name="tests.unfenced")
    def unfenced(key: int) -> None:
        with transaction.atomic():
            fences.check()

    def statements(task: Any) -> list[str]:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            Request(task, "id", key=1).run()
        return [each["sql"] for each in queries if "SAVEPOINT" not in each["sql"]]

    assert [each.split()[0] for each in statements(fenced)] == ["INSERT", "SELECT"]
    assert statements(unfenced) == []
