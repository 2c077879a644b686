"""What a webhook and a mail server get, over real sockets, and what is said when they do not take it."""

import json
import logging
import socket
from datetime import UTC, datetime

import pytest
from django.utils import timezone

from ami.telemetry.alerts import notices, receivers
from ami.telemetry.alerts.options import EMAIL, WEBHOOK
from ami.telemetry.alerts.policy import Event
from ami.telemetry.alerts.receivers.webhook import SIGNATURE, TIMESTAMP, signature
from ami.telemetry.models import Alert
from config.settings.mail import mail
from tests.support.smtp_server import mail_server
from tests.support.transports.recording_server import Answer, recording

SINCE = datetime(2026, 6, 1, 22, tzinfo=UTC)
SENTENCE = "antenna-ingest has no consumer and 7 messages; start celeryworker_ingest."
ALERT = Alert(
    pk=7, name="no-consumer", target="antenna-ingest", level="error", sentence=SENTENCE, since=SINCE, fired_at=SINCE
)


@pytest.fixture
def body(settings):
    settings.ANTENNA_PUBLIC_URL = "https://antenna.example.org/"
    return notices.body(ALERT, Event.FIRING)


@pytest.fixture
def server(settings):
    with recording() as recorder:
        settings.ANTENNA_ALERT_WEBHOOK_URL = f"{recorder.url}/hooks/s3cret-path"
        settings.ANTENNA_ALERT_WEBHOOK_SECRET = ""
        yield recorder


@pytest.fixture
def mailbox(settings):
    with mail_server() as box:
        settings.ANTENNA_ALERT_EMAIL = ("ops@example.org", "night@example.org")
        for name, value in mail(box.url, "antenna@example.org").items():
            setattr(settings, name, value)
        yield box


def test_webhook_gets_the_documented_json(server, body):
    receivers.send(WEBHOOK, body)
    (request,) = server.take()
    assert (request.method, request.path) == ("POST", "/hooks/s3cret-path")
    assert request.headers["content-type"] == "application/json"
    sent = json.loads(request.body)
    assert (sent["version"], sent["id"]) == (1, "7-firing")
    assert sent["text"] == f"FIRING no-consumer antenna-ingest: {SENTENCE}"
    assert sent["alert"] == {
        "name": "no-consumer",
        "target": "antenna-ingest",
        "level": "error",
        "sentence": SENTENCE,
        "since": "2026-06-01T22:00:00+00:00",
        "fired_at": "2026-06-01T22:00:00+00:00",
        "resolved_at": None,
    }
    assert sent["remedy"] == "https://antenna.example.org/admin/queues/handbook/#no-consumer"
    assert SIGNATURE.lower() not in request.headers


def test_notice_without_a_public_address_has_no_link(settings, mailbox):
    settings.ANTENNA_PUBLIC_URL = ""
    body = notices.body(ALERT, Event.FIRING)
    assert not {"remedy", "deployment"} & set(body)
    receivers.send(EMAIL, body)
    assert "Remedy: docs/operations.md" in mailbox.mails[0].message.get_content()


def test_webhook_is_signed_over_time_and_body(server, body, settings):
    settings.ANTENNA_ALERT_WEBHOOK_SECRET = "shared"
    receivers.send(WEBHOOK, body)
    (request,) = server.take()
    stamp = request.headers[TIMESTAMP.lower()]
    assert request.headers[SIGNATURE.lower()] == signature("shared", stamp, request.body)
    assert signature("shared", stamp, request.body) != signature("shared", stamp, request.body + b" ")
    assert abs(int(stamp) - timezone.now().timestamp()) < 60


def test_redirect_is_not_followed(server, body):
    with recording() as other:
        server.answer = Answer(307, {"Location": f"{other.url}/elsewhere"})
        with pytest.raises(receivers.NotSent, match="^it answers 307: redirects are not followed$"):
            receivers.send(WEBHOOK, body)
        assert not other.requests


@pytest.mark.parametrize("status", [400, 404, 429, 500])
def test_answer_of_an_error_is_said(server, body, status):
    server.answer = Answer(status, body=b"x" * 1_000_000)
    with pytest.raises(receivers.NotSent, match=f"^it answers {status}$"):
        receivers.send(WEBHOOK, body)


def test_silent_webhook_is_given_up_and_tried_once_at_a_time(server, body, monkeypatch):
    monkeypatch.setattr(receivers, "LONGEST_SECONDS", 0.3)
    server.answer = None
    with pytest.raises(receivers.NotSent, match="^no answer within 0 s$"):
        receivers.send(WEBHOOK, body)
    with pytest.raises(receivers.NotSent, match="^the try before has not ended$"):
        receivers.send(WEBHOOK, body)
    server.let_go.set()
    receivers._busy[WEBHOOK].join(10)
    assert len(server.requests) == 1


def test_reason_and_log_have_neither_address_nor_secret(body, settings, caplog):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    settings.ANTENNA_ALERT_WEBHOOK_URL = f"http://user:s3cret@127.0.0.1:{port}/s3cret"
    settings.ANTENNA_ALERT_WEBHOOK_SECRET = "s3cret"
    with caplog.at_level(logging.DEBUG), pytest.raises(receivers.NotSent) as refused:
        receivers.send(WEBHOOK, body)
    assert str(refused.value)
    assert "s3cret" not in f"{refused.value!r} {refused.value.__cause__!r} {caplog.text}"


def test_mail_reaches_every_address_with_its_remedy(mailbox, body):
    receivers.send(EMAIL, body)
    (mail,) = mailbox.mails
    assert (mail.sender, mail.recipients) == ("antenna@example.org", ["ops@example.org", "night@example.org"])
    assert mail.message["Subject"] == "[Antenna] FIRING no-consumer antenna-ingest"
    assert mail.message["Auto-Submitted"] == "auto-generated"
    text = mail.message.get_content()
    assert SENTENCE in text
    assert "https://antenna.example.org/admin/queues/handbook/#no-consumer" in text


def test_mails_of_one_alert_belong_together(mailbox, body):
    receivers.send(EMAIL, body)
    receivers.send(EMAIL, notices.body(ALERT, Event.RESOLVED))
    fired, resolved = (mail.message for mail in mailbox.mails)
    assert fired["References"] == resolved["References"]
    assert resolved["Subject"] == "[Antenna] RESOLVED no-consumer antenna-ingest"


def test_refusal_of_the_mail_server_is_said(mailbox, body):
    mailbox.refusal = "550 no such user"
    with pytest.raises(receivers.NotSent, match="^the mail server refuses every recipient$"):
        receivers.send(EMAIL, body)
    assert not mailbox.mails


def test_target_with_a_line_break_makes_no_header(mailbox, body):
    receivers.send(EMAIL, {**body, "title": "FIRING x\r\nBcc: all@example.org"})
    (mail,) = mailbox.mails
    assert mail.message["Bcc"] is None
    assert mail.recipients == ["ops@example.org", "night@example.org"]


def test_mail_settings_come_from_one_url():
    found = mail("smtp+tls://antenna:p%40ss@mail.example.org", "a@b")
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"], found["EMAIL_HOST_PASSWORD"]) == ("mail.example.org", 587, "p@ss")
    assert (found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"]) == (True, False)
    assert mail("", "a@b")["EMAIL_BACKEND"].endswith("dummy.EmailBackend")
