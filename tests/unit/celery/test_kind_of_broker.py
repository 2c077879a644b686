"""A publish builds no connection to learn the broker's kind."""

from typing import Any

import pytest
from celery import Celery

from tests.support.place import celery_at

TASK = "ami.jobs.tasks.audit_jobs"


@pytest.fixture
def built(app: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs of the connections that the application builds."""
    urls: list[str] = []
    connection = Celery._connection

    def watched(self: Any, url: str, **options: Any) -> Any:
        urls.append(url)
        return connection(self, url, **options)

    monkeypatch.setattr(Celery, "_connection", watched)
    return urls


def test_publishing_builds_no_connection_per_message(app: Any, built: list[str]):
    with celery_at("memory://"):
        app.send_task(TASK)
        del built[:]
        for _ in range(5):
            app.send_task(TASK)
    assert built == []


def test_kind_of_another_broker_is_learned_when_the_setting_changes(app: Any, sent: list[dict[str, Any]]):
    with celery_at("memory://"):
        app.send_task(TASK)
    with celery_at("amqp://unused"):
        app.send_task(TASK)
    assert ["confirm_timeout" in message for message in sent] == [False, True]
