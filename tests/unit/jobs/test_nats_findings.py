"""What is said of a NATS that does not answer."""

import socket
import threading
from contextlib import contextmanager

import pytest

from ami.jobs.services import nats_findings
from ami.queues.diagnostics import sources
from ami.queues.diagnostics.finding import Finding

pytestmark = pytest.mark.django_db


@contextmanager
def listening(greeting: bytes):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            link, _ = server.accept()
            with link:
                link.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        yield f"nats://127.0.0.1:{server.getsockname()[1]}"
        thread.join(5)


@pytest.fixture(autouse=True)
def _configured(settings):
    settings.NATS_IS_CONFIGURED = True


def test_nats_that_greets_is_well(settings):
    with listening(b'INFO {"server_id":"a"}\r\n') as settings.NATS_URL:
        assert not list(nats_findings.findings())


def test_something_else_is_not_nats(settings):
    with listening(b"HTTP/1.1 400 Bad Request\r\n") as settings.NATS_URL:
        (found,) = nats_findings.findings()
    assert (found.level, found.name) == ("error", "nats-away")
    assert "is not NATS" in found.sentence


def test_unreachable_nats_is_an_error(settings):
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.NATS_URL = f"nats://127.0.0.1:{server.getsockname()[1]}"
    (found,) = nats_findings.findings()
    assert "does not answer" in found.sentence


def test_nats_that_nobody_needs_may_be_away(settings):
    settings.NATS_IS_CONFIGURED, settings.NATS_URL = False, "nats://127.0.0.1:1"
    assert not list(nats_findings.findings())


def test_source_that_fails_hides_no_other(monkeypatch):
    monkeypatch.setattr(sources, "_sources", {})
    sources.connect("broken", lambda: 1 / 0)
    sources.connect("well", lambda: [Finding("error", "nats-away", "away")])
    assert [each.name for each in sources.findings()] == ["source", "nats-away"]
