"""The product publishes through ``ami.queues.publish`` alone: after commit, with the origin built there."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.contrib.django.task import DjangoTask
from django.db import transaction

from ami.queues.publish import publish_for_user, publish_successor, publish_task, republish
from ami.queues.reserved_slot import LONG_HEADER, ROOM_SECONDS
from ami.topology.router import ORIGIN_HEADER

ROOT = Path(__file__).parents[3]
PRODUCT = ("main", "ml", "jobs", "exports")
PUBLISHING = {"apply_async", "apply_async_on_commit", "delay", "delay_on_commit", "send_task"}
EXPORT = "ami.exports.tasks.run_export"


class RunningTask:
    """As much of a running task as publishing needs; keeps what it publishes."""

    name = EXPORT
    apply_async_on_commit = DjangoTask.apply_async_on_commit

    def __init__(self, **headers: Any) -> None:
        self.request = SimpleNamespace(headers=headers)
        self.published: list[dict[str, Any]] = []

    def apply_async(self, **options: Any) -> None:
        self.published.append(options)


def own_publishing(path: Path) -> Iterator[str]:
    """Yield where a module calls a publishing method of Celery or names the origin header."""
    for node in ast.walk(ast.parse(path.read_text())):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUBLISHING
        named = isinstance(node, ast.Name) and node.id == "ORIGIN_HEADER"
        spelt = isinstance(node, ast.Constant) and node.value == ORIGIN_HEADER
        if called or named or spelt:
            yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_no_product_module_publishes_by_itself():
    modules = [path for app in PRODUCT for path in (ROOT / "ami" / app).rglob("*.py")]
    assert len(modules) > 100
    assert [place for path in modules for place in own_publishing(path)] == []


def test_the_search_finds_every_way_to_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    module = tmp_path / "tasks.py"
    module.write_text(
        'run.apply_async()\nrun.delay()\napp.send_task("run")\nrun.apply_async_on_commit()\n'
        f'headers = {{ORIGIN_HEADER: 1}}\nheaders = {{"{ORIGIN_HEADER}": 1}}\nrun.retry()\n'
    )
    assert sorted(own_publishing(module)) == [f"tasks.py:{number}" for number in range(1, 7)]


@pytest.mark.django_db(transaction=True)
def test_message_is_published_after_commit_with_the_id_known_before():
    task = RunningTask()
    with transaction.atomic():
        task_id = publish_task(task, export_id=7)
        assert task.published == []
    assert task.published == [{"kwargs": {"export_id": 7}, "task_id": task_id}]


@pytest.mark.django_db(transaction=True)
def test_rolled_back_transaction_publishes_nothing():
    task = RunningTask()
    with transaction.atomic():
        publish_task(task, export_id=7)
        transaction.set_rollback(True)
    assert task.published == []


@pytest.mark.django_db(transaction=True)
def test_message_outside_a_transaction_is_published_at_once():
    task = RunningTask()
    publish_task(task, 7, origin="beat", headers={"waits": 1}, countdown=5)
    (message,) = task.published
    assert (message["args"], message["countdown"]) == ((7,), 5)
    assert message["headers"] == {"waits": 1, ORIGIN_HEADER: "beat"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_long", [True, False])
def test_user_gets_id_and_queue_of_the_message(is_long: bool):
    task = RunningTask()
    published = publish_for_user(task, is_long=is_long, export_id=7)
    (message,) = task.published
    assert (published.task_id, published.queue) == (message["task_id"], "antenna-interactive")
    assert published.flower_url == f"http://flower.example:5555/task/{published.task_id}"
    assert message["headers"] == {ORIGIN_HEADER: "person", **({LONG_HEADER: True} if is_long else {})}


@pytest.mark.django_db(transaction=True)
def test_successor_keeps_the_origin_and_needs_a_slot():
    task = RunningTask(**{ORIGIN_HEADER: "beat"})
    publish_successor(task, export_id=7)
    task.request.antenna_makes_room = True
    publish_successor(task, export_id=7)
    at_once, later = task.published
    assert at_once["headers"] == later["headers"] == {ORIGIN_HEADER: "beat", LONG_HEADER: True}
    assert ("countdown" in at_once, later["countdown"]) == (False, ROOM_SECONDS)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kept", [{LONG_HEADER: True}, {}])
def test_republished_message_keeps_origin_and_slot_header_alone(kept: dict[str, Any]):
    task = RunningTask(**{ORIGIN_HEADER: "person", "antenna_published_at": 1.0, **kept})
    republish(task, countdown=30, headers={"antenna_waits": 2}, job_id=7)
    (message,) = task.published
    assert (message["kwargs"], message["countdown"]) == ({"job_id": 7}, 30)
    assert message["headers"] == {ORIGIN_HEADER: "person", "antenna_waits": 2, **kept}
