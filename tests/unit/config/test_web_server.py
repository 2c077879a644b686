"""A connection has a deadline for its body, and none for an answer that is being read."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
from gunicorn.util import close_graceful

from ami.main.services import request_body
from config import web_server
from config.web_server import DeadlineSocket


@pytest.fixture
def ends() -> Iterator[tuple[DeadlineSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with DeadlineSocket(fileno=ours.detach()) as ours, theirs:
        yield ours, theirs


def test_a_body_has_time_by_its_size_and_a_large_one_for_its_turn(ends, monkeypatch):
    ours, theirs = ends
    monkeypatch.setattr(web_server, "SMALL_BODY_SECONDS", 0.05)
    ours.setblocking(True)
    ours.begin_body(100)
    with pytest.raises(TimeoutError):
        ours.recv(1)
    ours.begin_body(web_server.LARGE_BYTES + 1)
    assert ours.gettimeout() == web_server.SILENCE_SECONDS
    theirs.sendall(b"X")
    assert ours.recv(1) == b"X"


def test_rest_of_a_refused_body_that_drips_is_not_awaited(ends, monkeypatch):
    ours, theirs = ends
    monkeypatch.setattr(request_body, "DRAIN_SECONDS", 0.2)
    ours.setblocking(True)
    ours.begin_body(web_server.LARGE_BYTES + 1)
    deadline, closed = ours.until, []
    ours.force_close = lambda: closed.append("announced")
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.01):
            theirs.send(b"X")

    def read(size: int) -> bytes:  # As gunicorn does.
        return b"".join(ours.recv(1) for _ in range(size))

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        request_body.drain(
            {"gunicorn.socket": ours, "CONTENT_LENGTH": "4000", "wsgi.input": SimpleNamespace(read=read)}
        )
        assert time.monotonic() < deadline, "which such bytes reach only after minutes"
        assert ours.gettimeout() == web_server.SILENCE_SECONDS
        assert closed == ["announced"]
    finally:
        ended.set()
        dripping.join(10)


@pytest.mark.parametrize("goes_on", [False, True])
def test_client_that_stays_is_awaited_by_a_thread_and_not_in_the_loop(monkeypatch, goes_on):
    monkeypatch.setattr(web_server, "DRAIN_SECONDS", 0.1)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as theirs:
        ours = DeadlineSocket(fileno=server.accept()[0].detach())
        monkeypatch.setattr(web_server.ThreadWorker, "handle", lambda *_: ours.sendall(b"an answer") or False)

        def send() -> None:
            with suppress(OSError):
                while goes_on and not ended.wait(0.01):
                    theirs.send(b"the rest of a body")

        sending = threading.Thread(target=send)
        sending.start()
        try:
            assert web_server.Worker.__new__(web_server.Worker).handle(SimpleNamespace(sock=ours)) is False
            assert theirs.recv(100) == b"an answer"
            in_loop = threading.Thread(target=close_graceful, args=(ours, 3600), daemon=True)
            in_loop.start()
            in_loop.join(10)
            assert not in_loop.is_alive()
        finally:
            ended.set()
            sending.join(10)


@pytest.mark.parametrize(
    ("proxies", "forwarded", "logged"),
    [(1, "6.6.6.6, 198.51.100.7", "198.51.100.7"), (1, "", "10.0.0.2"), (0, "6.6.6.6", "10.0.0.2")],
)
def test_access_log_names_the_client_not_the_proxy(monkeypatch, settings, proxies, forwarded, logged):
    settings.ANTENNA_PROXIES = proxies
    monkeypatch.setattr(web_server.GunicornLogger, "atoms", lambda *given: {"h": "10.0.0.2", "s": 200})
    logger = web_server.Logger.__new__(web_server.Logger)
    environ = {"REMOTE_ADDR": "10.0.0.2", "HTTP_X_FORWARDED_FOR": forwarded}
    assert logger.atoms(None, None, environ, None) == {"h": logged, "s": 200}


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
