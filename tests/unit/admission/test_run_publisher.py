"""What is logged while calls are not published."""

from typing import Any

import pytest
from kombu.exceptions import OperationalError

from ami.admission import picks, run_publisher
from ami.admission.models import Call
from ami.celery import bulk_publisher, outages
from ami.celery.bulk_publisher import UnconfirmedTasks
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def outgoing(count: int) -> list[picks.Outgoing]:
    for number in range(count):
        admitted.sent.apply_async((number,), task_id=f"id-{number}")
    return [picks.Outgoing(f"run-{call.pk}", call) for call in Call.objects.order_by("pk")]


@pytest.mark.parametrize(
    ("error", "said", "task"),
    [
        (OperationalError("away"), "Broker operation failed", None),
        (UnconfirmedTasks(["id-0"], [], TimeoutError("away")), "Calls not confirmed", None),
        (TypeError("away"), "Call not published: away", admitted.sent.name),
    ],
    ids=["refused", "unconfirmed", "of a call"],
)
def test_failing_publisher_logs_a_line_a_minute(
    app: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, error: Exception, said: str, task: str | None
):
    def publish(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(bulk_publisher, "publish_many", publish)
    for kept in ("_complained_at", "_outages"):
        monkeypatch.setattr(outages, kept, {})
    picked = outgoing(3)
    for _ in range(5):
        run_publisher.publish(app, picked)
    (record,) = [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]
    assert said in record.getMessage()
    assert getattr(record, "task", None) == task
    now = outages.time.monotonic()
    monkeypatch.setattr(outages.time, "monotonic", lambda: now + outages.AGAIN_SECONDS)
    run_publisher.publish(app, picked)
    assert len([each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]) == 2
