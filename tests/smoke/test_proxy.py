"""The proxy before web: clients that wait do not stop web, each has its own throttle, and a new web is found."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import docker, inspect, until
from tests.support.product.large_bodies import JSON, LOGIN, MIB

RESULTS = "/api/v2/jobs/1/result/"
SCRIPT = "/static/main/vendor/swagger-ui/swagger-ui-bundle.js"
#: Guesses one account's password from inside a container until it is told to wait; prints how often it was not.
GUESS = """
import json, sys, urllib.error, urllib.request as http
body = json.dumps({"email": sys.argv[1], "password": "wrong"}).encode()
for count in range(int(sys.argv[2])):
    headers = {"Content-Type": "application/json", "Host": "localhost", "X-Forwarded-For": f"198.51.100.{count}"}
    try:
        http.urlopen(http.Request("http://proxy:8080/api/v2/auth/token/login/", body, headers), timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 429:
            break
        assert error.code == 400, error.code
print(count)
"""


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "\r\n"]).encode()


def begun(path: str, size: int) -> bytes:
    """A request of whose body only the first byte has come."""
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {size}") + b"{"


@contextmanager
def connections(deployment: Deployment, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Hold connections that have sent this much, and read nothing."""
    place = ("127.0.0.1", deployment.port("proxy", 8080))
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(60)
            connection.connect(place)
            connection.sendall(sent)
            held.append(connection)
        yield held


@pytest.mark.parametrize(
    ("count", "sent"),
    [
        pytest.param(1100, b"", id="nothing"),
        pytest.param(40, b"GET /", id="five bytes"),
        pytest.param(40, b"GET /livez HTTP/1.1\r\nX-Drip: ", id="part of the headers"),
        pytest.param(40, begun(LOGIN, 4000), id="part of a body"),
        pytest.param(40, begun(RESULTS, 4000), id="part of results"),
        pytest.param(40, begun(RESULTS, 400 * MIB), id="part of large results"),
        pytest.param(40, head("GET", SCRIPT), id="no answer read"),
    ],
)
def test_clients_that_wait_do_not_stop_web(deployment: Deployment, count: int, sent: bytes):
    with connections(deployment, count, sent):
        assert httpx.get(f"{deployment.web_url}/livez", timeout=30).status_code == 200


def test_two_clients_are_throttled_apart_by_their_own_addresses(deployment: Deployment):
    """Each try has a forged X-Forwarded-For, which would make it a client of its own if it counted."""
    guess = ["python", "-c", GUESS, "guessed@example.org"]
    assert 10 <= int(deployment.execute("processing", *guess, "60")) < 59, "after ten within a minute"
    assert int(deployment.execute("celeryworker", *guess, "3")) == 2, "another client is not throttled"
    networks = inspect(deployment.container("processing"))["NetworkSettings"]["Networks"].values()
    (address,) = (network["IPAddress"] for network in networks)
    assert re.search(rf'{re.escape(address)} \[.*\] "POST {LOGIN} HTTP/1.1" 429', deployment.logs("web"))


def test_results_are_not_buffered_and_what_is_too_large_is_refused_in_plain_words(deployment: Deployment):
    with connections(deployment, 1, begun(RESULTS, 321_000_000)) as (connection,):
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401"), "web is asked before the body is here"
    with httpx.Client(base_url=deployment.web_url, headers={"Host": "localhost"}, timeout=60) as client:
        large = b"x" * 17 * MIB
        assert client.post(RESULTS, content=large, headers=JSON).status_code == 401
        refused = client.post(LOGIN, content=large, headers=JSON)
        assert (refused.status_code, refused.json()) == (413, {"detail": "The body has more than 16 MiB."})
        refused = client.post(LOGIN, content=large[: 15 * MIB], headers=JSON)
        assert (refused.status_code, "at most 4096" in refused.json()["detail"]) == (413, True), "web's own"
        form = client.post("/admin/login/", content=large)
        assert (form.status_code, form.text) == (413, "The form is too large.\n")


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, identity",),
        ("Host: another.example",),
    ],
)
def test_request_of_which_two_readings_exist_is_refused(deployment: Deployment, headers: tuple[str, ...]):
    with connections(deployment, 1, head("POST", LOGIN, *headers) + b"0\r\n\r\n") as (connection,):
        assert re.match(rb"HTTP/1.1 (400|501) ", connection.recv(65_536))


def test_web_that_is_away_is_a_503_and_a_new_one_at_another_address_is_found(deployment: Deployment):
    def answers() -> bool:
        return httpx.get(f"{deployment.web_url}/livez", timeout=60).status_code == 200

    (network,) = inspect(old := deployment.container("web"))["NetworkSettings"]["Networks"]
    proxy = inspect(deployment.container("proxy"))["Id"]
    before = address(old, network)
    deployment.compose("rm", "--stop", "--force", "web")
    # Takes the free address, so that the new web has another.
    taken = docker("run", "--detach", "--rm", "--network", network, "antenna:smoke", "sleep", "600").strip()
    try:
        until(lambda: not answers(), 30, "the proxy has noticed")
        page = httpx.get(f"{deployment.web_url}/admin/", timeout=60)
        assert (page.status_code, page.headers["Retry-After"]) == (503, "5")
        assert "Please try again" in page.text
        assert "nginx" not in page.text
        refused = httpx.post(f"{deployment.web_url}{RESULTS}", content=b"{}", headers=JSON, timeout=60)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert "Try again" in refused.json()["detail"]
        assert f'"POST {RESULTS}" 503' in deployment.logs("proxy")
        deployment.up("--no-deps", "web")
        until(answers, 30, "the proxy has found the new web")
    finally:
        docker("rm", "--force", taken)
    assert address(deployment.container("web"), network) != before
    assert inspect(deployment.container("proxy"))["Id"] == proxy


def address(container: str, network: str) -> str:
    return str(inspect(container)["NetworkSettings"]["Networks"][network]["IPAddress"])
