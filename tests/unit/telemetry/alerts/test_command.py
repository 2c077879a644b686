"""``manage.py queues alerts``: what it lists, and its test of the receivers."""

import io
import json

import pytest
from django.core.management import call_command
from django.utils import timezone

from ami.telemetry.models import Alert
from tests.support.transports.recording_server import Answer, recording

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(settings):
    with recording() as recorder:
        settings.ANTENNA_ALERT_WEBHOOK_URL = f"{recorder.url}/s3cret"
        yield recorder


def alerts(*argv: str) -> tuple[str, int]:
    out, code = io.StringIO(), 0
    try:
        call_command("queues", "alerts", *argv, stdout=out)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return out.getvalue(), code


def test_list_shows_what_fires_first_and_the_receivers(server):
    now = timezone.now()
    Alert.objects.create(name="held", target="ingest@a", level="warning", sentence="[x]", since=now)
    Alert.objects.create(name="no-beat", level="error", sentence="No beat.", since=now, fired_at=now)
    shown = json.loads(alerts("--json")[0])
    assert [(row["state"], row["sent"]) for row in shown["alerts"]] == [("firing", "yes"), ("pending", None)]
    assert [(row["receiver"], row["state"]) for row in shown["receivers"]] == [("webhook", "works")]
    text = alerts()[0]
    assert "No beat." in text
    assert "[x]" in text


def test_test_alert_reaches_the_receiver(server):
    text, code = alerts("test")
    assert (code, "accepted" in text, "Set ANTENNA_PUBLIC_URL" in text) == (0, True, True)
    (request,) = server.take()
    assert json.loads(request.body)["event"] == "test"


def test_test_alert_that_is_refused_ends_with_1_and_says_why(server):
    server.answer = Answer(403)
    text, code = alerts("test")
    assert code == 1
    assert "it answers 403" in text
    assert "s3cret" not in text


def test_without_a_receiver_it_says_what_to_set(settings):
    settings.ANTENNA_ALERT_WEBHOOK_URL = ""
    assert "set ANTENNA_ALERT_WEBHOOK_URL" in alerts()[0]
    assert alerts("test")[1] == 1
