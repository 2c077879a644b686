"""A broken promise is a finding of the live check, and the page shows it once."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from ami.queues.diagnostics import sources
from ami.telemetry import findings, promise_findings, shared_values
from ami.telemetry.broker_figures import BrokerFigures, link
from ami.telemetry.models import Sample
from ami.telemetry.snapshots import live

pytestmark = pytest.mark.django_db
QUEUE = "antenna"


@pytest.fixture
def broken(monkeypatch):
    """Five messages wait in the queue, and none has been started for longer than its wait target."""
    figures = BrokerFigures(waiting={QUEUE: 5}, consumers={QUEUE: 1})
    monkeypatch.setattr(link, "read", lambda *_, **__: figures)
    for ago in (100, 30):
        at = timezone.now() - timedelta(seconds=ago)
        Sample.objects.create(kind="queue", name=QUEUE, resolution=5, at=at, waiting=5, started=0)
    return figures


def test_broken_promise_is_a_finding_of_the_live_check(broken):
    (found,) = [each for each in sources.findings() if each.name == "promise-broken"]
    assert (found.level, found.target) == ("warning", QUEUE)
    assert found.sentence.startswith(f"{QUEUE} does not keep its promise: a message has waited for ")


def test_promises_that_cannot_be_judged_are_said(monkeypatch):
    monkeypatch.setattr(link, "read", lambda *_, **__: BrokerFigures(unseen="The broker does not answer"))
    (found,) = promise_findings.findings()
    assert (found.level, found.name, found.target) == ("unseen", "source", "promises")


def test_page_shows_it_once(broken):
    row = {"level": "warning", "name": "promise-broken", "sentence": "of the look", "target": QUEUE}
    shared_values.current(findings.NAME, 10.0, lambda _: [row])
    shown, _ = findings.current(live.take(None, settings.ANTENNA_TOPOLOGY))
    (found,) = [each for each in shown if each.name == "promise-broken"]
    assert found.sentence != "of the look"
