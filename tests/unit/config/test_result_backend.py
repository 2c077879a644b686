"""Results in the database: a chord's body is sent once, after its last part, however often a part is delivered."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from celery import Celery, chord
from celery.exceptions import ChordError
from django.db import connection
from django_celery_results.models import ChordCounter, TaskResult

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


class Recording(Celery):
    """An application that keeps what it publishes."""

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        self.sent.append((name, tuple(args or ()), options))
        return self.AsyncResult(options["task_id"])


@pytest.fixture
def app() -> Recording:
    app = Recording("parts", backend="config.result_backend:Backend", set_as_current=False)
    app.conf.update(result_serializer="json", result_extended=True, task_always_eager=False)
    app.task(_one, name="part")
    app.task(_one, name="body")
    return app


def _one(value: Any) -> Any:
    return value


def start(app: Recording, size: int) -> list[SimpleNamespace]:
    """Publish a chord; return the requests of its parts as their workers have them."""
    app.sent = []
    chord([app.tasks["part"].s(number) for number in range(size)])(app.tasks["body"].s())
    return [_request(args, options) for _, args, options in app.sent]


def _request(args: tuple[Any, ...], options: dict[str, Any]) -> SimpleNamespace:
    names = {"id": options["task_id"], "group": options["group_id"], "chord": options["chord"], "task": "part"}
    rest = {"ignore_result": False, "retries": 0, "delivery_info": {"redelivered": False}, "children": []}
    return SimpleNamespace(**names, **rest, args=args, kwargs={}, hostname="worker@here", errbacks=None, chain=None)


def again(request: SimpleNamespace) -> SimpleNamespace:
    """Return the request of the same message, delivered once more."""
    return SimpleNamespace(**{**vars(request), "delivery_info": {"redelivered": True}})


def finish(app: Recording, *requests: SimpleNamespace) -> None:
    for request in requests:
        app.backend.mark_as_done(request.id, request.args[0], request)


def bodies(app: Recording) -> list[list[int]]:
    return [args[0] for name, args, _ in app.sent if name == "body"]


def test_the_body_gets_every_part_s_result(app):
    parts = start(app, 3)
    finish(app, parts[2], parts[0])
    assert bodies(app) == []
    finish(app, parts[1])
    assert bodies(app) == [[0, 1, 2]]
    assert not ChordCounter.objects.exists()


def test_a_part_that_comes_twice_does_not_end_the_count(app):
    """django-celery-results' own count would be over here, and the body never sent."""
    parts = start(app, 3)
    finish(app, parts[0], again(parts[0]), again(parts[0]), parts[1])
    assert bodies(app) == []
    finish(app, parts[2])
    assert bodies(app) == [[0, 1, 2]]


def test_a_part_that_comes_again_after_the_body_changes_nothing(app):
    parts = start(app, 2)
    finish(app, *parts, again(parts[1]))
    assert bodies(app) == [[0, 1]]


def test_redelivered_last_part_sends_the_body_of_a_dead_process(app, monkeypatch):
    parts = start(app, 2)
    finish(app, parts[0])
    with monkeypatch.context() as patched:
        patched.setattr("config.result_backend.trigger_callback", Mock(side_effect=SystemExit))
        with pytest.raises(SystemExit):
            finish(app, parts[1])
    assert bodies(app) == []
    monkeypatch.setattr("config.result_backend.SENDING_SECONDS", 0.2)
    finish(app, again(parts[1]))
    assert bodies(app) == [[0, 1]]


def test_parts_that_ignore_their_results_make_a_chord_too(app):
    parts = start(app, 2)
    for part in parts:
        part.ignore_result = True
    finish(app, *parts)
    assert bodies(app) == [[0, 1]]


def test_a_failed_part_fails_the_body(app):
    parts = start(app, 2)
    body = parts[0].chord["options"]["task_id"]
    finish(app, parts[0])
    app.backend.mark_as_failure(parts[1].id, ValueError("no"), request=parts[1])
    assert bodies(app) == []
    assert isinstance(app.AsyncResult(body).result, ChordError)


def test_a_result_says_what_ran_where(app):
    part, _ = start(app, 2)
    finish(app, part)
    row = TaskResult.objects.get(task_id=part.id)
    assert (row.task_name, row.worker, row.status) == ("part", "worker@here", "SUCCESS")


@pytest.mark.django_db(transaction=True)
def test_parts_that_end_at_the_same_time_send_one_body(app):
    for _ in range(3):
        parts = start(app, 12)
        with ThreadPoolExecutor(6) as workers:
            list(workers.map(lambda part: _finish_there(app, part), [*parts, *map(again, parts[:4])]))
        assert bodies(app) == [list(range(12))]


def _finish_there(app: Recording, part: SimpleNamespace) -> None:
    try:
        finish(app, part)
    finally:
        connection.close()
