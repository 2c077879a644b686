"""A snapshot with one of everything, and the pages of the console for users with and without permissions."""

from dataclasses import replace

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission
from django.test import Client

from ami.console import page
from ami.console.quantities import iso  # noqa: F401
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import (
    BeatFigures,
    FindingFigures,
    JobFigures,
    Quantiles,
    QueueFigures,
    Snapshot,
    Stop,
    TaskFigures,
    WorkerFigures,
)
from tests.support.product import factories

#: 2026-06-01 22:00 UTC.
AT = 1_780_351_200.0
MIB = 1024**2
JOB = JobFigures(5, "Night of June", "ml", "Panama", "STARTED", "process", 0.25, 2, 3.5, 600.0)


def task(number: int = 1, **values) -> TaskFigures:
    return TaskFigures(f"task-{number}", "ami.jobs.tasks.run_job", 100 + number, 12.5, 2048, "3 of 9", **values)


def worker(queue: str, service: str, **values) -> WorkerFigures:
    figures = WorkerFigures(
        node=f"{service}@host",
        service=service,
        host="host",
        version="1.2.3",
        state="running",
        why="",
        seen_seconds=1.5,
        started_at=AT - 3600,
        queues=(queue,),
        closed_queues=(),
        concurrency=4,
        children=4,
        pid=10,
        memory_used_bytes=900 * MIB,
        memory_limit_bytes=2048 * MIB,
        hold_percent=85.0,
        release_percent=75.0,
    )
    return replace(figures, **values)


def queue(row, **values) -> QueueFigures:
    figures = QueueFigures(
        queue=row.queue,
        service=row.service,
        wait_target_seconds=row.wait_target_seconds,
        waiting=0,
        running=0,
        delayed=0,
        consumers=1,
        dead_letters=0,
        promise="kept",
        promise_words="p95 wait 40 ms of 1 s",
        waits=Quantiles(0.01, 0.04, 0.1),
        runs=Quantiles(0.2, 1.5, 4.0),
        per_minute={"started": 12.0, "ended": 11.5, "failed": 0.0},
        history=tuple(range(60)),
        workers=(f"{row.service}@host",),
    )
    return replace(figures, **values)


def snapshot(**values) -> Snapshot:
    """Return figures of every queue of the table, the first flooded and the second paused."""
    rows = settings.ANTENNA_TOPOLOGY.workloads
    paused = Stop("user 1 anna", "maintenance <b>tonight</b>", AT - 300, AT + 3600)
    flooded = {"waiting": 200_000, "promise": "broken", "promise_words": "p95 wait 9 min", "dead_letters": 3}
    special = {0: flooded, 1: {"paused": paused, "waiting": 7}}
    found = Snapshot(
        taken_at=AT,
        version=7,
        queues=tuple(queue(row, **special.get(number, {})) for number, row in enumerate(rows)),
        workers=tuple(worker(row.queue, row.service, running=(task(),)) for row in rows[:2]),
        beats=(BeatFigures("beat@host", 1.0, AT - 20, AT + 40),),
        jobs=(JOB,),
        findings=(
            FindingFigures("error", "no-consumer", f"{rows[0].queue} has no consumer; start it.", rows[0].queue),
            FindingFigures("warning", "paused", f"{rows[1].queue} is paused; resume it.", rows[1].queue),
        ),
        findings_at=AT - 4,
        unseen=(),
    )
    return replace(found, **values)


def show(monkeypatch, found: Snapshot) -> None:
    """Let the pages show this snapshot."""
    monkeypatch.setattr(shared, "current", lambda *_, **__: found)


def client_of(*permissions: str, **fields) -> Client:
    """Return the browser of a staff user with these permissions of queues, jobs and calls."""
    person = factories.user(**{"is_staff": True, **fields})
    apps = ("queues", "jobs", "admission")
    found = Permission.objects.filter(content_type__app_label__in=apps, codename__in=permissions)
    person.user_permissions.add(*found)
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def nothing_rendered():
    """A process that has rendered no part yet."""
    page.rendered.clear()
    yield
    page.rendered.clear()
