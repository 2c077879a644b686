"""What the unit tests of Celery and of the queues share: the application, and tasks that live as long as a test."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ami.celery.staged_calls import dispatching
from config import celery_app


@pytest.fixture
def app() -> Any:
    return celery_app


@pytest.fixture(scope="session", autouse=True)
def short_pauses() -> Iterator[None]:
    """Kombu's second try to connect follows the first soon, not two seconds later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kombu.utils.functional.sleep", lambda seconds: time.sleep(min(seconds, 0.02)))
        yield


@pytest.fixture
def make_task(app: Any):
    """Register a task that does nothing, under the given name and with the given options."""
    made: list[str] = []

    def make(name: str, **options: Any) -> Any:
        def nothing(*args: Any, **kwargs: Any) -> None:
            """Do nothing."""

        made.append(name)
        return app._task_from_fun(nothing, name=name, **options)

    yield make
    for name in made:
        app.tasks.pop(name, None)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What reaches Celery's own ``send_task``: one dictionary of name, args, kwargs and options per message."""
    from celery import Celery

    messages: list[dict[str, Any]] = []

    def send(self: Any, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> None:
        messages.append({"name": name, "args": args, "kwargs": kwargs, **options})

    monkeypatch.setattr(Celery, "send_task", send)
    return messages


@pytest.fixture
def as_messages() -> Iterator[None]:
    """Publish calls of tasks with a policy as messages, as another application does."""
    with dispatching():
        yield
