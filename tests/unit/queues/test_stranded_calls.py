"""What `check --live` says of calls that wait for a task which no worker knows."""

from typing import Any

import pytest
from django.db import OperationalError

from ami.admission.models import Call
from ami.admission.waiting_tasks import waiting_tasks
from ami.queues import diagnostics, governors
from ami.queues.diagnostics import stranded
from tests.support.place import celery_at

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

GONE, KNOWN = "tests.gone", "tests.known"


class Answering:
    """Workers that say which tasks they have."""

    def __init__(self, **registered: list[str]) -> None:
        self.control, self.answers, self.asked = self, registered, 0

    def inspect(self, *, timeout: float, limit: int) -> "Answering":
        assert (timeout, limit) == (governors.INSPECT_SECONDS, 2)
        self.asked += 1
        return self

    def registered(self) -> Any:
        return self.answers or None


def row(task: str, queue: str = "antenna", **fields: Any) -> None:
    Call.objects.create(task_id=f"{Call.objects.count()}", task=task, queue=queue, arguments="", options="", **fields)


def found(app: Answering, workers: str = "ab") -> list[tuple[str, str, str]]:
    return [(each.level, each.name, each.target) for each in stranded.findings(app, workers)]


def test_task_that_no_worker_knows_is_named_with_its_queues_and_a_remedy():
    for queue in ("antenna", "antenna", "antenna-ingest"):
        row(GONE, queue)
    row(KNOWN)
    [finding] = stranded.findings(Answering(a=[KNOWN], b=[]), "ab")
    assert (finding.level, finding.name, finding.target) == ("error", "stranded-calls", GONE)
    for part in (f"3 calls of {GONE}", "antenna, antenna-ingest", "queues peek antenna'", "queues release ID --drop"):
        assert part in finding.sentence


def test_task_that_one_worker_knows_is_not_stranded():
    row(GONE)
    assert found(Answering(a=[KNOWN], b=[KNOWN, GONE])) == []
    assert found(Answering(a=[], b=[f"{GONE} [rate_limit=10/s]"])) == []


def test_nothing_is_said_without_the_answer_of_every_worker():
    row(GONE)
    for app in (Answering(), Answering(a=[KNOWN])):
        assert found(app) == []
        assert app.asked == 1
    assert found(app, workers="") == []


def test_workers_are_asked_only_where_calls_wait():
    row(GONE, run="r")
    row(GONE, stopped_at="2026-11-29T00:00Z")
    app = Answering(a=[], b=[])
    assert (found(app), app.asked, waiting_tasks()) == ([], 0, [])


def test_database_that_is_away_is_not_the_calls_fault(monkeypatch: pytest.MonkeyPatch):
    def away() -> Any:
        raise OperationalError("away")

    monkeypatch.setattr(stranded, "waiting_tasks", away)
    with pytest.raises(OperationalError):
        found(Answering())


def test_live_check_looks_for_stranded_calls(settings: Any, app: Any, monkeypatch: pytest.MonkeyPatch):
    row(GONE)
    monkeypatch.setattr(diagnostics.queues, "queue_states", lambda *_: [])
    monkeypatch.setattr(governors, "stats", lambda _: {"a": {}})
    monkeypatch.setattr(type(app.control.inspect()), "registered", lambda _: {"a": [KNOWN]})
    with celery_at("memory://"):
        names = [each.name for each in diagnostics.findings(settings.ANTENNA_TOPOLOGY, app, "")]
    assert "stranded-calls" in names
