"""A running Flower shows nothing without the login, and RabbitMQ's queues with it."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import pytest

from ami.topology.topology import load
from tests.support.brokers import FOLDER
from tests.support.place import Place, Process, management, new_place, until

LOGIN = ("operator", "sesame")
#: The management API's user; each character of its password has a meaning in a URL.
USER, PASSWORD = "flower@test", "open/sesame:@%?"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Place, Process]]:
    """The address of a running Flower with a login, where it runs, and its process."""
    with new_place("flower") as place, _management_user(place) as management_url:
        logins = f"{':'.join(LOGIN)},second:sesame-two"
        url, process = _start(place, FLOWER_BASIC_AUTH=logins, RABBITMQ_MANAGEMENT_URL=management_url)
        yield url, place, process


def _start(place: Place, **environment: str) -> tuple[str, Process]:
    """Start a Flower; return its address, and its process, when it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = place.celery("flower", "--address=127.0.0.1", f"--port={port}", "--logging=debug", **environment)
    url = f"http://127.0.0.1:{port}"
    until(lambda: _answers(process, url), what="Flower answers")
    return url, process


@pytest.fixture(scope="module")
def flower(running: tuple[str, Place, Process]) -> str:
    """The address of the running Flower."""
    return running[0]


@contextmanager
def _management_user(place: Place) -> Iterator[str]:
    """Make a user who may only look; give the management API's URL with the login of that user."""
    name, parts = quote(USER, safe=""), urlsplit(os.environ["RABBITMQ_MANAGEMENT_URL"])
    management("PUT", f"users/{name}", {"password": PASSWORD, "tags": "monitoring"})
    try:
        management("PUT", f"permissions/{place.vhost}/{name}", {"configure": "", "write": "", "read": ".*"})
        login = f"{name}:{quote(PASSWORD, safe='')}"
        yield urlunsplit(parts._replace(netloc=f"{login}@{parts.hostname}:{parts.port}"))
    finally:
        management("DELETE", f"users/{name}")


def _answers(process: Process, url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthcheck", timeout=5, verify=False).text == "OK"
    except httpx.HTTPError:
        assert process.popen.poll() is None, process.text
        return False


PATHS = ("/", "/workers", "/tasks", "/broker", "/api/workers", "/api/tasks", "/api/queues/length", "/metrics")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("auth", [None, ("operator", "wrong"), ("operator", "")])
def test_nothing_is_shown_without_the_login(flower: str, path: str, auth: tuple[str, str] | None):
    assert httpx.get(flower + path, auth=auth, timeout=10).status_code == 401


@pytest.mark.parametrize("path", ["/api/task/send-task/ami.jobs.tasks.run_job", "/api/worker/shutdown/ingest@host"])
def test_nothing_is_done_without_the_login(flower: str, path: str):
    assert httpx.post(flower + path, json={"args": []}, timeout=10).status_code == 401


@pytest.mark.parametrize("auth", [("operator", "sesame"), ("second", "sesame-two")])
def test_the_login_opens_pages_api_and_metrics(flower: str, auth: tuple[str, str]):
    for path in ("/workers", "/api/workers", "/metrics"):
        assert httpx.get(flower + path, auth=auth, timeout=10).status_code == 200


def test_broker_page_shows_the_queues_by_the_management_url(running: tuple[str, Place, Process]):
    url, place, process = running
    place.queues("declare")
    page = until(lambda: _page_with(url, "antenna-interactive"), 20, "the page lists the queues")
    for queue in load({}).queues:
        assert queue in page
    _assert_hidden(page, process.text)

    # A refused login is a log line, and the page stays.
    management("PUT", f"users/{quote(USER, safe='')}", {"password": "changed", "tags": "monitoring"})
    page = httpx.get(f"{url}/broker", auth=LOGIN, timeout=10).text
    assert "antenna-interactive" not in page
    until(lambda: "RabbitMQ management API call failed: HTTP 401" in process.text, 10, "the refusal is logged")
    _assert_hidden(page, process.text)


def test_broker_page_of_the_virtual_host_slash_shows_no_other(running: tuple[str, Place, Process]):
    _, place, _ = running
    place.queues("declare")
    broker_url = urlunsplit(urlsplit(place.broker_url)._replace(path="//"))
    own = management("GET", "queues/%2F").json()
    url, process = _start(
        place,
        FLOWER_BASIC_AUTH=":".join(LOGIN),
        CELERY_BROKER_URL=broker_url,
        RABBITMQ_MANAGEMENT_URL=os.environ["RABBITMQ_MANAGEMENT_URL"],
    )
    page = httpx.get(f"{url}/broker", auth=LOGIN, timeout=10)
    assert page.status_code == 200
    assert "management API call failed" not in process.text
    assert ("antenna-interactive" in page.text) == ("antenna-interactive" in [queue["name"] for queue in own])


def test_broker_page_shows_the_queues_of_a_folder():
    with new_place("flower-folder", FOLDER) as place:
        place.queues("declare")
        place.app.send_task("tests.nowhere", queue="antenna-interactive")
        url, process = _start(place, FLOWER_BASIC_AUTH=":".join(LOGIN))
        page = until(lambda: _page_with(url, "antenna-interactive"), 20, "the page lists the queues")
        for queue in load({}).queues:
            assert queue in page
        row = page.partition('id="antenna-interactive"')[2].partition("</tr>")[0]
        assert re.findall(r">(\d+)<", row) == ["1", "0", "1", "0"], process.text


def _page_with(url: str, queue: str) -> str:
    page = httpx.get(f"{url}/broker", auth=LOGIN, timeout=10)
    assert page.status_code == 200
    return page.text if queue in page.text else ""


def _assert_hidden(*texts: str) -> None:
    for text in texts:
        for secret in (PASSWORD, quote(PASSWORD, safe=""), quote(USER, safe="")):
            assert secret not in text
