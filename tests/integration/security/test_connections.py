"""After a refused body the connection stays usable or is closed as announced; its rest is never read as a request."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.own_database import place_with_own_database
from tests.support.product.large_bodies import FORM, JSON, LOGIN, MIB
from tests.support.web_server import Web, web_of

#: Above each limit here, and read within a fraction of what a refused body has.
LARGE = 300 * 1024


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which gunicorn's control socket would be."""
    return tmp_path_factory.mktemp("sockets")


@pytest.fixture(scope="module")
def web(django_db_setup, django_db_blocker, sockets: Path) -> Iterator[Web]:
    """One web server for all tests of this module; they leave no state in it."""
    with django_db_blocker.unblock(), place_with_own_database("connections") as place:
        yield web_of(place, XDG_RUNTIME_DIR=str(sockets))


def statuses(web: Web, *requests: bytes) -> list[str]:
    """Send all requests at once on one connection; return the status of each response."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as connection:
        connection.sendall(b"".join(requests))
        text = b""
        while text.count(b"HTTP/1.1 ") < len(requests) or not text.endswith(b"ok\n"):
            piece = connection.recv(65_536)
            if not piece:
                break
            text += piece
    return re.findall(r"HTTP/1\.1 (\d+)", text.decode())


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *length, *headers])
    return head.encode() + b"\r\n\r\n" + body


def test_web_server_has_no_control_socket(web: Web, sockets: Path):
    assert httpx.get(f"{web.url}/livez", timeout=60).status_code == 200
    assert list(sockets.iterdir()) == []


def test_the_next_request_is_answered_after_a_refusal(web: Web):
    live = request("GET", "/livez")
    as_json, as_form = "Content-Type: application/json", "Content-Type: application/x-www-form-urlencoded"
    chunked = request("POST", LOGIN, as_json, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"
    refused = {
        "5 KiB": (request("POST", LOGIN, as_json, body=b"x" * 5_000), "413"),
        "300 KiB": (request("POST", LOGIN, as_json, body=b"x" * LARGE), "413"),
        "a form": (request("POST", "/admin/login/", as_form, body=b"x" * LARGE), "413"),
        "no token": (request("POST", "/api/v2/jobs/", as_json, body=b"x" * LARGE), "401"),
        "another kind": (request("POST", LOGIN, as_form, body=b"a=" * 1000), "415"),
    }
    for name, (first, status) in refused.items():
        assert statuses(web, first, live) == [status, "200"], name
    assert statuses(web, chunked) == ["411"], "and the connection is closed as announced"

    with httpx.Client(base_url=web.url, timeout=60) as client:
        for body in (b"x" * 5_000, b"x" * LARGE, iter([b"x" * LARGE])):
            assert client.post(LOGIN, content=body, headers=JSON).status_code in (411, 413)
            assert client.get("/livez").status_code == 200
        assert client.post("/livez", content=b"x" * LARGE, headers=FORM).status_code == 413
        assert client.get("/livez").status_code == 200


def test_connection_is_closed_when_the_rest_is_not_read(web: Web):
    head = request("POST", LOGIN, "Content-Type: application/json", f"Content-Length: {17 * MIB}")
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as connection:
        connection.sendall(head + b"x" * MIB)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536).decode()
    assert answer.startswith("HTTP/1.1 413")
    assert "connection: close" in answer.lower()


def test_stalled_bodies_release_their_threads(web: Web):
    stopped = [
        request("POST", LOGIN, "Content-Type: application/json", "Content-Length: 100"),
        request("POST", LOGIN, "Content-Type: application/json", "Content-Length: 4000") + b'{"email":',
        request("POST", LOGIN, "Content-Type: application/json", "Content-Length: 4001") + b'{"email":',
        request("POST", LOGIN, "Content-Type: application/json", "Content-Length: 4002") + b'{"email":',
    ]
    connections = [socket.create_connection(("127.0.0.1", web.port), timeout=60) for _ in stopped]
    for connection, begun in zip(connections, stopped, strict=True):
        connection.sendall(begun)
    assert httpx.get(f"{web.url}/livez", timeout=60).status_code == 200
    answers = [connection.recv(65_536)[:12] for connection in connections]
    assert answers == [b"HTTP/1.1 408"] * len(stopped)
    for connection in connections:
        connection.close()
