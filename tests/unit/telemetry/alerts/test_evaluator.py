"""Alerts over looks, processes and receivers that fail; a real webhook, and what it costs."""

import json
import threading
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
from ami.telemetry.alerts import command, delivery, evaluator, receiver_findings, receivers, shown
from ami.telemetry.models import Alert
from ami.telemetry.snapshots.shape import FindingFigures
from tests.support.brokers import celery_at
from tests.support.transports.recording_server import Answer, recording

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
QUEUE = "antenna-ingest"
NO_CONSUMER = FindingFigures("error", "no-consumer", f"{QUEUE} has no consumer.", QUEUE)
NATS_AWAY = FindingFigures("error", "nats-away", "NATS does not answer.")
#: Looks after which an alert that is gone is over.
OVER = 6


@pytest.fixture
def server(settings):
    with recording() as recorder:
        settings.ANTENNA_ALERT_WEBHOOK_URL = recorder.url
        yield recorder


@pytest.fixture
def deployment(server, monkeypatch):
    """A clock that the test sets, what a look shows, and processes that take the lease over from each other."""
    made = SimpleNamespace(seconds=0.0, found=[])
    began, held_at = timezone.now(), delivery.held_at
    monkeypatch.setattr(delivery, "held_at", lambda holder: held_at(holder) and began + timedelta(seconds=made.seconds))
    monkeypatch.setattr(findings, "for_alerts", lambda _: list(made.found))

    def look(*found: FindingFigures, by: str = "one", looks: int = 1) -> None:
        made.found = found
        until = timezone.now() + timedelta(hours=1)
        Lease.objects.update_or_create(name="sampler", defaults={"holder": by, "until": until})
        for _ in range(looks):
            evaluator.look(by)
            made.seconds += 60

    made.look = look
    return made


def events(server) -> list[str]:
    return [json.loads(request.body)["event"] for request in server.requests]


def names(server) -> list[str]:
    return [json.loads(request.body)["alert"]["name"] for request in server.requests]


def ids(server) -> list[str]:
    return [json.loads(request.body)["id"].partition("-")[2] for request in server.requests]


def test_alert_arrives_once_and_is_resolved_over_three_processes(deployment, server):
    deployment.look(NO_CONSUMER, by="one")
    deployment.look(NO_CONSUMER, by="two")  # It has lasted over both.
    assert events(server) == ["firing"]
    assert [figures.is_sent for figures in shown.firing().values()] == [True]
    deployment.look(NO_CONSUMER, by="three", looks=3)
    deployment.look(by="three", looks=3)
    deployment.look(by="one", looks=3)
    assert events(server) == ["firing", "resolved"]
    assert [(row["state"], row["sent"]) for row in command.listed()] == [("resolved", "yes")]


def test_process_that_was_frozen_and_lost_the_lease_sends_and_writes_nothing(deployment, server, monkeypatch):
    deployment.look(NO_CONSUMER)
    with monkeypatch.context() as frozen:
        frozen.setattr(findings, "for_alerts", lambda _: Lease.objects.update(holder="two") and [NO_CONSUMER])
        deployment.look()
    assert events(server) == []
    assert Alert.objects.get().fired_at is None


@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
def test_notice_of_a_process_killed_around_sending_is_sent_by_the_next(deployment, server, monkeypatch, is_sent):
    deployment.look(NO_CONSUMER)

    def killed(*sent):
        if is_sent:
            send(*sent)
        raise KeyboardInterrupt

    send = receivers.send
    monkeypatch.setattr(receivers, "send", killed)
    with pytest.raises(KeyboardInterrupt):
        deployment.look(NO_CONSUMER)
    monkeypatch.setattr(receivers, "send", send)
    assert [figures.is_sent for figures in shown.firing().values()] == [False]
    deployment.look(by="two", looks=OVER + 1)
    assert ids(server) == ["firing"] * is_sent + ["firing", "resolved"], "a second time with the same id"


def test_receiver_that_is_away_for_an_hour_gets_all_in_order_and_is_a_finding(deployment, server):
    server.answer = Answer(500)
    deployment.look(NO_CONSUMER, looks=20)
    assert events(server) == ["firing"] * 19, "at each look again"
    (finding,) = receiver_findings.findings()
    assert (finding.name, finding.target) == ("alert-receiver", "webhook")
    assert "19 tries: it answers 500" in finding.sentence
    deployment.look(looks=10)
    deployment.look(NO_CONSUMER, looks=30)
    assert command.listed()[0]["sent"] == "waits"
    server.begin()
    deployment.look(NO_CONSUMER)
    assert events(server) == ["firing", "resolved", "firing"]
    assert names(server) == ["no-consumer"] * 3
    assert not list(receiver_findings.findings())
    assert [row["state"] for row in receiver_findings.states()] == ["works"]


def test_repetition_waits_only_where_nothing_else_does(deployment, server, settings):
    settings.ANTENNA_ALERT_REPEAT_SECONDS = 600
    server.answer = Answer(500)
    deployment.look(NO_CONSUMER, looks=30)
    server.begin()
    deployment.look(NO_CONSUMER, looks=10)
    assert events(server) == ["firing", "repeat"]


def test_notice_that_is_refused_holds_up_no_other_alert(deployment, server):
    server.answer = Answer(400)
    deployment.look(NO_CONSUMER, looks=2)
    server.begin()
    server.answer = Answer(400)
    deployment.look(NO_CONSUMER, NATS_AWAY, looks=2)
    server.begin()
    deployment.look(NO_CONSUMER, NATS_AWAY)
    assert names(server) == ["nats-away", "no-consumer"], "the one that was tried less comes first"


def test_what_is_over_for_a_day_is_deleted_and_what_fires_is_not(deployment, server, settings):
    settings.ANTENNA_ALERT_REPEAT_SECONDS = 0
    server.answer = Answer(500)
    deployment.look(NO_CONSUMER, NATS_AWAY, looks=2)
    deployment.look(NATS_AWAY, looks=OVER)
    deployment.seconds += 25 * 3600
    deployment.look(NATS_AWAY)  # It changes nothing else.
    assert [(alert.name, alert.state) for alert in Alert.objects.all()] == [(NATS_AWAY.name, "firing")]


def test_receiver_that_was_taken_out_of_the_settings_is_waited_for_no_more(deployment, server, settings):
    server.answer = Answer(500)
    deployment.look(NO_CONSUMER, looks=2)
    settings.ANTENNA_ALERT_WEBHOOK_URL, settings.ANTENNA_ALERT_EMAIL = "", ("ops@example.org",)
    assert [figures.is_sent for figures in shown.firing().values()] == [True]


def test_look_runs_beside_its_caller_once_at_a_time(monkeypatch, server, settings):
    settings.ANTENNA_ALERT_INTERVAL_SECONDS = 0
    began, go_on = threading.Event(), threading.Event()
    looks: list[str] = []

    def slow(holder: str) -> None:
        looks.append(holder)
        began.set()
        go_on.wait(10)

    monkeypatch.setattr(evaluator, "look", slow)
    monkeypatch.setattr(evaluator.connections, "close_all", lambda: None)
    one = evaluator.Evaluator()
    one.turn("one")
    assert began.wait(10)
    one.turn("one")
    assert looks == ["one"]
    go_on.set()
    assert one._thread is not None
    one._thread.join(10)
    settings.ANTENNA_ALERT_WEBHOOK_URL = ""
    one.turn("one")
    assert looks == ["one"], "nothing without a receiver"


@pytest.fixture
def healthy(server, monkeypatch):
    """A deployment in which a look finds what has lasted since the look before, and nothing new."""
    now = timezone.now()
    for row in django_settings.ANTENNA_TOPOLOGY.workloads:
        Worker.objects.create(node=f"{row.key}@a", host="a", queues=[row.queue], pid=1, started_at=now, seen_at=now)
    Lease.objects.create(name="sampler", holder="one", until=now + timedelta(hours=1))
    monkeypatch.setattr(governors, "stats", lambda _: {})
    with celery_at("objectstore+memory://alerts"):
        with current_app.connection_for_write() as link:
            declare(django_settings.ANTENNA_TOPOLOGY, link)
        evaluator.look("one")
        evaluator.look("one")
        yield


def test_look_costs_few_statements_in_short_blocks_and_writes_nothing(healthy, monkeypatch):
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
    counting = connection.execute_wrapper(counted)
    with CaptureQueriesContext(connection) as queries, counting, thread_database.beside_forks():
        evaluator.look("one")
    assert not outside
    assert max(blocks) <= 12
    sent = [each["sql"] for each in queries]
    print(f"{len(sent)} statements a look, each minute; by block: {blocks}")
    assert len(sent) <= 24
    assert not [each for each in sent if not each.lstrip("(").startswith("SELECT")]
