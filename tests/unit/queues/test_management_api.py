"""RabbitMQ's management API: its URL, its requests, and errors that repeat no credentials."""

import base64
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ami.queues.management_api import ManagementApi, ManagementUnavailable

SECRET = "s3cret-of-the-operator"


class Broker:
    """A server with given answers, which keeps its requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
                assert scheme == "Basic"
                user = base64.b64decode(credentials).decode()
                outer.asked.append((self.command, self.path, user, body))
                code, data = outer.answers.get(self.path, (404, {}))
                text = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = answer

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def broker():
    broker = Broker()
    yield broker
    broker.server.shutdown()
    broker.server.server_close()


@pytest.fixture
def api(broker: Broker) -> ManagementApi:
    return ManagementApi(f"http://antenna:{SECRET}@{broker.host}", "/")


@pytest.mark.parametrize(
    ("path", "vhost", "asked"),
    [
        ("", "/", "/api/queues/%2F"),
        ("/", "", "/api/queues/%2F"),
        ("/rabbit/", "antenna", "/rabbit/api/queues/antenna"),
        ("", "a b/c", "/api/queues/a%20b%2Fc"),
    ],
)
def test_url_may_have_a_path_and_the_virtual_host_any_name(broker: Broker, path: str, vhost: str, asked: str):
    broker.answers[asked] = (200, [{"name": "antenna"}])
    api = ManagementApi(f"http://antenna:{SECRET}@{broker.host}{path}", vhost)
    assert api.queues() == [{"name": "antenna"}]
    assert broker.asked == [("GET", asked, f"antenna:{SECRET}", None)]


def test_credentials_of_the_url_are_percent_decoded(broker: Broker):
    broker.answers["/api/queues/%2F"] = (200, [])
    ManagementApi(f"http://ant%40enna:p%2Fw%3A%25@{broker.host}", "/").queues()
    assert broker.asked[0][2] == "ant@enna:p/w:%"


@pytest.mark.parametrize(
    ("text", "version"), [("3.10.8", (3, 10, 8)), ("4.1.0-rc.1", (4, 1, 0)), ("3.13.7+debian", (3, 13, 7))]
)
def test_version_is_returned_as_numbers(broker: Broker, api: ManagementApi, text: str, version: tuple[int, ...]):
    broker.answers["/api/overview"] = (200, {"rabbitmq_version": text})
    assert api.version() == version


def test_alarms_and_blocked_connections_are_named(broker: Broker, api: ManagementApi):
    broker.answers["/api/nodes"] = (
        200,
        [
            {"name": "rabbit@one", "mem_alarm": True, "disk_free_alarm": False},
            {"name": "rabbit@two", "mem_alarm": False, "disk_free_alarm": True},
            {"name": "rabbit@down"},
        ],
    )
    broker.answers["/api/connections"] = (
        200,
        [
            {"name": "1 -> 2", "state": "blocked", "client_properties": {"connection_name": "web"}},
            {"name": "3 -> 2", "state": "blocking"},
            {"name": "4 -> 2", "state": "running"},
        ],
    )
    assert api.alarms() == ["rabbit@one: memory", "rabbit@two: disk"]
    assert api.blocked_connections() == ["web", "3 -> 2"]


def test_policies_are_written_one_by_one_and_read_by_name(broker: Broker, api: ManagementApi):
    broker.answers["/api/policies/%2F/a%2Fb"] = (201, {})
    broker.answers["/api/policies/%2F"] = (200, [{"name": "a/b", "pattern": "^x$"}])
    assert api.put_policies([{"name": "a/b", "pattern": "^x$"}]) == ["a/b"]
    assert broker.asked[0][0] == "PUT"
    assert broker.asked[0][3] == {"pattern": "^x$"}
    assert api.policies() == {"a/b": {"name": "a/b", "pattern": "^x$"}}


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "RABBITMQ_MANAGEMENT_URL is not set"),
        (f"antenna:{SECRET}@host", "RABBITMQ_MANAGEMENT_URL names no host"),
        ("localhost:15672", "RABBITMQ_MANAGEMENT_URL names no host"),
        (f"http://antenna:{SECRET}@host:port", "RABBITMQ_MANAGEMENT_URL"),
    ],
)
def test_url_that_leads_nowhere_is_refused_without_its_credentials(url: str, sentence: str):
    with pytest.raises(ManagementUnavailable, match=sentence) as refused:
        ManagementApi(url, "/").queues()
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("code", [401, 404, 500])
def test_answer_that_is_a_refusal_is_one_without_credentials(broker: Broker, api: ManagementApi, code: int):
    broker.answers["/api/overview"] = (code, {})
    with pytest.raises(ManagementUnavailable, match=f"/api/overview answered {code}") as refused:
        api.version()
    assert SECRET not in str(refused.value)


def test_answer_that_is_not_json_is_a_refusal(broker: Broker, api: ManagementApi):
    broker.answers["/api/overview"] = (200, b"<html>a proxy's own page</html>")
    with pytest.raises(ManagementUnavailable):
        api.version()


def test_address_may_be_an_ipv6_one():
    with pytest.raises(ManagementUnavailable, match=r"^http://\[::1\]:9/api does not answer"):
        ManagementApi("http://antenna:word@[::1]:9", "/").version()


def test_server_that_does_not_answer_is_one_sentence_without_credentials():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://antenna:{SECRET}@127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ManagementUnavailable, match=r"/api does not answer \(ConnectError\)") as refused:
            ManagementApi(url, "/").version()
    assert SECRET not in str(refused.value)
