"""The losing proxy: its faults follow from the seed, and each does what its name says."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from tests.support.losing_proxy import CLAIMED, CUT, DOUBLED, KINDS, REFUSED, LosingProxy, running

TASKS, RESULT = "/api/v2/jobs/7/tasks/", "/api/v2/jobs/7/result/"


class _Api(BaseHTTPRequestHandler):
    got: list[tuple[str, bytes]] = []

    def do_POST(self) -> None:
        self.got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[str]:
    _Api.got.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def faults_of(seed: int) -> list[str | None]:
    proxy = LosingProxy("http://127.0.0.1:1", seed=seed, share=0.3)
    try:
        return [proxy.fault("POST", path) for path in (TASKS, RESULT) * 100]
    finally:
        proxy.server_close()


def test_faults_follow_from_the_seed():
    assert faults_of(1) == faults_of(1) != faults_of(2)
    assert {kind for kind in KINDS if faults_of(1).count(kind) >= 5} == set(KINDS)


@pytest.mark.parametrize(
    ("path", "kind", "status", "forwarded"),
    [(TASKS, REFUSED, 503, 0), (TASKS, CLAIMED, 0, 1), (RESULT, CUT, 0, 1), (RESULT, DOUBLED, 200, 2)],
)
def test_each_fault_does_what_its_name_says(api, monkeypatch, path, kind, status, forwarded):
    monkeypatch.setattr(LosingProxy, "fault", lambda *_: kind)
    with running(api) as proxy:
        if status:
            assert httpx.post(proxy.url + path, content=b"body").status_code == status
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.post(proxy.url + path, content=b"body")
    assert _Api.got == [(path, b"body")] * forwarded
    assert proxy.requests["POST", path.replace("7", "{id}"), status] == 1


def test_other_requests_are_forwarded_as_they_are(api):
    with running(api, share=1.0) as proxy:
        assert httpx.post(f"{proxy.url}/api/v2/jobs/?start_now=1", content=b"x").status_code == 200
    assert _Api.got == [("/api/v2/jobs/?start_now=1", b"x")]
    assert proxy.queries == {"/api/v2/jobs/?start_now": 1}
