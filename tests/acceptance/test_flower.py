"""A running Flower shows nothing without the login: no page, no API call, no metric."""

import socket

import httpx
import pytest

from tests.support.place import Process, new_place, until


@pytest.fixture(scope="module")
def flower():
    """The address of a running Flower with a login."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with new_place("flower") as place:
        process = place.celery(
            "flower",
            "--address=127.0.0.1",
            f"--port={port}",
            FLOWER_BASIC_AUTH="operator:sesame,second:sesame-two",
        )
        url = f"http://127.0.0.1:{port}"
        until(lambda: _answers(process, url), what="Flower answers")
        yield url


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
