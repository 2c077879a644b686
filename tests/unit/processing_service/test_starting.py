"""A processing service that starts before Antenna does: it registers as soon as Antenna answers."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from processing_service import fleet
from processing_service.antenna import AntennaError
from processing_service.backoff import Backoff
from processing_service.fleet import Credentials, FleetSettings, run_fleet
from processing_service.puller import PullSettings
from provision.ports import free_ports
from tests.support.place import until


class _Api(BaseHTTPRequestHandler):
    refusals: list[int] = []
    registered = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status = self.refusals.pop(0) if self.refusals else 201
        self._answer(status, {})
        if status == 201:
            self.registered.set()

    def do_GET(self) -> None:
        self._answer(200, {"results": []})

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(fleet, "STARTING", Backoff(attempts=2, first_seconds=0.01, longest_seconds=0.02))
    _Api.registered.clear()
    _Api.refusals.clear()
    [found] = free_ports(1)
    return found


@pytest.fixture
def api(port: int) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", port), _Api)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def settings(port: int, **pull: object) -> FleetSettings:
    chosen = PullSettings(["sheet-moths"], poll_seconds=0.01, **pull)
    return FleetSettings(f"http://127.0.0.1:{port}", Credentials("token"), 1, "service", chosen, pullers=1)


def test_service_registers_when_antenna_has_started(port: int, request: pytest.FixtureRequest, caplog):
    stop = threading.Event()
    thread = threading.Thread(target=run_fleet, args=(settings(port), stop))
    thread.start()
    until(lambda: caplog.text.count("antenna unreachable, trying again") > 2, 20)
    _Api.refusals[:] = [503, 502, 504]
    request.getfixturevalue("api")
    assert _Api.registered.wait(20)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()


def test_service_that_waits_for_antenna_stops_when_it_is_told(port: int):
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    assert run_fleet(settings(port), stop) == 0


def test_refusal_ends_the_service(port: int, api: ThreadingHTTPServer):
    _Api.refusals[:] = [403]
    with pytest.raises(AntennaError, match="403"):
        run_fleet(settings(port), threading.Event())


def test_service_that_runs_once_does_not_wait(port: int):
    with pytest.raises(AntennaError, match="ConnectError"):
        run_fleet(settings(port, once=True), threading.Event())


def test_stop_while_antenna_is_away_is_no_error(port: int, api: ThreadingHTTPServer, caplog, monkeypatch):
    stop = threading.Event()
    thread = threading.Thread(target=run_fleet, args=(settings(port), stop))
    thread.start()
    assert _Api.registered.wait(20)
    api.shutdown()
    api.server_close()
    until(lambda: "antenna retry path=jobs/" in caplog.text, 20)
    stop.set()
    thread.join(20)
    assert "stopped while antenna was unreachable" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
