"""Findings of the live check with the lever that mends them."""

import pytest
from django.conf import settings
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from ami.console.findings import LEVER_OF, finding_row
from ami.console.levers import LEVERS
from ami.queues import disabling, pauses
from ami.queues.diagnostics import reported
from ami.queues.models import Worker
from ami.queues.wishes import Operator
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import FindingFigures
from tests.support import console
from tests.support.brokers import celery_at

pytestmark = pytest.mark.django_db
TOPOLOGY = settings.ANTENNA_TOPOLOGY
QUEUE = TOPOLOGY.workloads[0].queue
TASK = "ami.jobs.tasks.run_job"


@pytest.fixture(autouse=True)
def broker():
    with celery_at("objectstore+memory://console-findings"):
        yield


def test_lever_has_the_target_that_the_sentence_names():
    pauses.pause(TOPOLOGY, QUEUE, Operator("anna"), why="night", seconds=0)
    disabling.disable(TASK, Operator("anna"))
    Worker.objects.create(
        node="ingest@a",
        host="a",
        queues=[QUEUE],
        pid=1,
        is_connected=True,
        is_parked=True,
        unaccounted=3,
        started_at=timezone.now(),
        seen_at=Now(),
    )
    rows = [
        finding_row(FindingFigures(each.level, each.name, each.sentence))
        for each in reported.findings(TOPOLOGY, reported.workers())
    ]
    assert {(row.name, row.lever, row.target) for row in rows if row.lever} == {
        ("paused", "resume", QUEUE),
        ("disabled", "enable", TASK),
        ("parked", "unpark", "ingest@a"),
        ("unaccounted", "restart", "ingest@a"),
    }


def test_every_lever_of_a_finding_exists():
    assert set(LEVER_OF.values()) <= set(LEVERS)


def test_page_after_a_pause_shows_it_at_once(nothing_rendered):
    client = console.client_of("pause_queue")
    shared.forget()
    assert "Paused by" not in client.get(reverse("console:overview")).content.decode()
    answer = client.post(reverse("console:lever", args=["pause", QUEUE]), {"why": "night shift"}, follow=True)
    shown = answer.content.decode()
    assert "Paused by" in shown
    assert "night shift" in shown
