"""A connection has a deadline for its headers and one for its body, and none for an answer that is being read."""

import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from config import web_server
from config.web_server import DeadlineSocket


@pytest.fixture
def ends() -> Iterator[tuple[DeadlineSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with DeadlineSocket(fileno=ours.detach()) as ours, theirs:
        yield ours, theirs


def test_slow_headers_end_at_the_deadline_without_a_log_line(ends, monkeypatch):
    ours, theirs = ends
    monkeypatch.setattr(web_server, "HEADERS_SECONDS", 0.1)
    ours.setblocking(True)

    def drip() -> None:
        while theirs.send(b"X"):
            assert ours.recv(1) == b"X"

    with pytest.raises(ConnectionResetError):
        drip()


def test_a_body_has_time_by_its_size_and_a_large_one_for_its_turn(ends, monkeypatch):
    ours, theirs = ends
    monkeypatch.setattr(web_server, "HEADERS_SECONDS", 0.05)
    ours.setblocking(True)
    ours.begin_body(100)
    with pytest.raises(TimeoutError):
        ours.recv(1)
    ours.begin_body(web_server.LARGE_BYTES + 1)
    assert ours.gettimeout() == web_server.SILENCE_SECONDS
    theirs.sendall(b"X")
    assert ours.recv(1) == b"X"


def test_a_large_answer_may_take_longer_than_one_timeout(ends):
    ours, theirs = ends
    ours.setblocking(True)
    ours.settimeout(1.5)
    part = 256 * 1024
    sent = threading.Thread(target=ours.sendall, args=(b"x" * part * 8,))
    began = time.monotonic()
    sent.start()
    for _ in range(8):
        time.sleep(0.2)
        theirs.recv(part, socket.MSG_WAITALL)
    sent.join(60)
    assert not sent.is_alive()
    assert time.monotonic() - began > ours.gettimeout()


@pytest.mark.parametrize(
    ("status", "address", "is_logged"),
    [
        (304, "/admin/queues/?live=overview", False),
        (200, "/admin/queues/queue/antenna/?span=7d&live=tasks", False),
        (401, "/admin/queues/?live=overview", True),
        (500, "/admin/queues/?live=overview", True),
        (200, "/admin/queues/", True),
        (200, "/api/v2/jobs/?live=1", True),
    ],
)
def test_polls_that_went_well_are_not_in_the_access_log(monkeypatch, status, address, is_logged):
    logged = []
    monkeypatch.setattr(web_server.GunicornLogger, "access", lambda *given: logged.append(given))
    logger = web_server.Logger.__new__(web_server.Logger)
    logger.access(SimpleNamespace(status_code=status), None, {"RAW_URI": address}, None)
    assert bool(logged) == is_logged
