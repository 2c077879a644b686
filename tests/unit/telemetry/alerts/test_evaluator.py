"""Alerts over looks, processes and receivers that fail; a real webhook, and what it costs."""

import json
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery import current_app
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.celery import thread_database
from ami.celery.declaration import declare
from ami.queues import governors
from ami.queues.models import Lease, Worker
from ami.telemetry import findings
from ami.telemetry.alerts import command, delivery, evaluator, receiver_findings, store
from ami.telemetry.models import Alert, AlertNotice, AlertReceiver
from ami.telemetry.snapshots.shape import FindingFigures
from tests.support.brokers import celery_at
from tests.support.transports.recording_server import Answer, recording

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
QUEUE = "antenna-ingest"
NO_CONSUMER = FindingFigures("error", "no-consumer", f"{QUEUE} has no consumer.", QUEUE)


@pytest.fixture
def server(settings):
    with recording() as recorder:
        settings.ANTENNA_ALERT_WEBHOOK_URL = recorder.url
        yield recorder


@pytest.fixture
def deployment(server, monkeypatch):
    """A clock that the test sets, what a look shows, and processes that take the lease over from each other."""
    made = SimpleNamespace(seconds=0.0, found=[], server=server)
    began = timezone.now()
    monkeypatch.setattr(store.Memory, "now", lambda _: began + timedelta(seconds=made.seconds))
    monkeypatch.setattr(findings, "for_alerts", lambda _: list(made.found))
    processes: dict[str, evaluator.Evaluator] = {}

    def look(holder: str = "one", looks: int = 1) -> None:
        until = timezone.now() + timedelta(hours=1)
        Lease.objects.update_or_create(name="sampler", defaults={"holder": holder, "until": until})
        for _ in range(looks):
            processes.setdefault(holder, evaluator.Evaluator()).look(holder)
            made.seconds += 15

    made.look = look
    return made


def events(server) -> list[str]:
    return [json.loads(request.body)["event"] for request in server.requests]


def names(server) -> list[str]:
    return [json.loads(request.body)["alert"]["name"] for request in server.requests]


def test_alert_arrives_once_and_is_resolved(deployment):
    deployment.found = [NO_CONSUMER]
    deployment.look(looks=8)
    assert events(deployment.server) == ["firing"]
    deployment.found = []
    deployment.look(looks=2)
    assert events(deployment.server) == ["firing", "resolved"]
    assert [row["state"] for row in command.listed()] == ["resolved"]


def test_takeover_neither_repeats_nor_loses_an_alert(deployment):
    deployment.found = [NO_CONSUMER]
    deployment.look("one", looks=3)
    deployment.look("two", looks=2)  # It has lasted over both.
    assert events(deployment.server) == ["firing"]
    deployment.look("three", looks=3)
    assert events(deployment.server) == ["firing"]
    deployment.found = []
    deployment.look("three")
    deployment.look("one")
    assert events(deployment.server) == ["firing", "resolved"]


def test_process_that_was_frozen_and_lost_the_lease_sends_nothing(deployment):
    deployment.found = [NO_CONSUMER]
    deployment.look("one", looks=3)
    frozen = evaluator.Evaluator()
    frozen._memory = store.load("one")
    deployment.look("two", looks=3)
    deployment.found = []
    frozen.look("one")
    assert events(deployment.server) == ["firing"]
    assert Alert.objects.get().absent_since is None


def test_notice_that_a_dead_process_has_not_sent_is_sent_by_the_next(deployment, monkeypatch):
    deployment.found = [NO_CONSUMER]
    deployment.look("one", looks=4)
    with monkeypatch.context() as killed:
        killed.setattr(delivery, "turn", lambda *_: None)
        deployment.look("one")
    assert AlertNotice.objects.get().sent_at is None
    deployment.look("two")
    assert events(deployment.server) == ["firing"]


def test_failing_receiver_is_tried_ever_later_and_is_a_finding(deployment):
    deployment.found = [NO_CONSUMER]
    deployment.server.answer = Answer(500)
    deployment.look(looks=5 + 40)  # Ten minutes.
    # After 0, 15, 45, 105, 225 and 465 s.
    assert events(deployment.server) == ["firing"] * 6
    (finding,) = receiver_findings.findings()
    assert (finding.name, finding.target) == ("alert-receiver", "webhook")
    assert "6 tries: it answers 500" in finding.sentence
    deployment.server.begin()
    deployment.found = []
    deployment.look(looks=40)
    assert events(deployment.server) == ["firing", "resolved"], "in order, once each"
    assert not list(receiver_findings.findings())
    assert command.states()[0]["state"] == "works"


def test_notice_that_is_refused_holds_up_no_other_alert(deployment):
    deployment.found = [NO_CONSUMER]
    deployment.server.answer = Answer(400)
    deployment.look(looks=5)
    deployment.server.begin()
    deployment.found = [NO_CONSUMER, FindingFigures("error", "nats-away", "NATS does not answer.")]
    assert AlertReceiver.objects.get().failures == 1
    deployment.server.answer = Answer(400)
    deployment.look(looks=3)
    deployment.server.begin()
    deployment.look(looks=4)
    assert names(deployment.server) == ["nats-away", "no-consumer"], "the one that was tried less comes first"


def test_notice_is_given_up_after_a_day_unless_it_still_fires(deployment):
    deployment.server.answer = Answer(500)
    deployment.found = [NO_CONSUMER]
    deployment.look(looks=5)
    deployment.seconds += 25 * 3600
    deployment.look()
    assert not AlertNotice.objects.exclude(given_up_at=None).exists()
    deployment.found = []
    deployment.look(looks=2)
    deployment.seconds += 25 * 3600
    deployment.look()
    assert not store.unsent().exists()


def test_nothing_is_done_without_a_receiver(settings):
    settings.ANTENNA_ALERT_WEBHOOK_URL = ""
    one = evaluator.Evaluator()
    one.turn("one")
    assert one._thread is None


@pytest.fixture
def healthy(server, monkeypatch):
    """A deployment in which a look finds what has lasted since the look before, and nothing new."""
    now = timezone.now()
    for row in django_settings.ANTENNA_TOPOLOGY.workloads:
        Worker.objects.create(node=f"{row.key}@a", host="a", queues=[row.queue], pid=1, started_at=now, seen_at=now)
    Lease.objects.create(name="sampler", holder="one", until=now + timedelta(hours=1))
    monkeypatch.setattr(governors, "stats", lambda _: {})
    one = evaluator.Evaluator()
    with celery_at("objectstore+memory://alerts"):
        with current_app.connection_for_write() as link:
            declare(django_settings.ANTENNA_TOPOLOGY, link)
        one.look("one")
        one.look("one")
        yield one


def test_look_costs_at_most_twenty_statements_and_writes_nothing(healthy):
    with CaptureQueriesContext(connection) as queries:
        healthy.look("one")
    sent = [each["sql"] for each in queries]
    print(f"{len(sent)} statements a look, {4 * len(sent)} a minute")
    assert len(sent) <= 20
    assert not [each for each in sent if not each.lstrip("(").startswith("SELECT")]


def test_every_statement_beside_forks_is_in_a_short_block(healthy, monkeypatch):
    blocks, outside = [], []

    @contextmanager
    def short():
        blocks.append(0)
        is_open.append(True)
        yield
        is_open.pop()

    def counted(execute, sql, *rest):
        if is_open:
            blocks[-1] += 1
        else:
            outside.append(sql)
        return execute(sql, *rest)

    is_open: list[bool] = []
    monkeypatch.setattr(thread_database, "short_connection", short)
    with connection.execute_wrapper(counted), thread_database.beside_forks():
        healthy.look("one")
    assert not outside
    assert max(blocks) <= 12
    print(f"statements by block: {blocks}")


def test_receiver_that_never_failed_is_no_finding(server):
    AlertReceiver.objects.create(name="webhook", sent_at=timezone.now())
    assert not list(receiver_findings.findings())
