"""A dead worker's processes are ended by pid and start time, its connections by name; its webhook is called."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from ami.governor.probes import identity
from ami.queues.models import Worker
from ami.queues.rescue import connections, processes, webhook

pytestmark = pytest.mark.processes


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield started
    started.kill()
    started.wait()


def row(pid: int, started: int, **fields: Any) -> Worker:
    here = {"boot_id": identity.boot_id(), "pid_namespace": identity.pid_namespace()}
    return Worker(node="a", pid=pid, pid_started=started, **here | fields)


def test_process_is_ended_by_pid_and_start_time(sleeper: subprocess.Popen[bytes]):
    assert processes.end(row(sleeper.pid, identity.start_ticks(sleeper.pid))) == 1
    assert sleeper.wait(10) == -9


@pytest.mark.parametrize(
    "fields", [{"pid_started": 1}, {"boot_id": "another"}, {"pid_namespace": "pid:[1]"}, {"boot_id": ""}]
)
def test_other_process_with_the_same_pid_is_left_alone(sleeper: subprocess.Popen[bytes], fields: dict[str, Any]):
    found = row(sleeper.pid, identity.start_ticks(sleeper.pid))
    for name, value in fields.items():
        setattr(found, name, value)
    assert processes.end(found) == 0
    assert sleeper.poll() is None


def test_stopped_process_is_found_and_own_process_is_never_ended(sleeper: subprocess.Popen[bytes]):
    started = identity.start_ticks(sleeper.pid)
    assert processes.stopped(row(sleeper.pid, started)) == set()
    os.kill(sleeper.pid, 19)
    while identity.state(sleeper.pid) != "T":
        pass
    assert processes.stopped(row(1, 1, children=[[sleeper.pid, started]])) == {(sleeper.pid, started)}
    assert processes.end(row(os.getpid(), identity.start_ticks(os.getpid()))) == 0


def test_connections_are_closed_by_the_workers_name_alone():
    closed: list[str] = []
    named = [("127.0.0.1:1 -> :2", "ingest@a#1"), ("127.0.0.1:3 -> :2", "ingest@a#2"), ("127.0.0.1:4 -> :2", None)]
    api: Any = SimpleNamespace(
        connections=lambda: [
            {"name": name, "client_properties": {"connection_name": given} if given else None} for name, given in named
        ],
        close_connection=lambda name, reason: closed.append(name) or True,
    )
    assert connections.close_by_name(api, "ingest@a#1") == 1
    assert connections.close_by_name(api, "") == 0
    assert closed == ["127.0.0.1:1 -> :2"]


def test_webhook_is_called_again_after_a_failure(settings: Any):
    bodies: list[dict[str, Any]] = []
    done = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - the library's name
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if len(bodies) == 1 else 200)
            self.end_headers()
            if len(bodies) == 2:
                done.set()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.ANTENNA_RESCUE_WEBHOOK_URL = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        webhook.send("DEAD WORKER a", {"worker": "a", "verdict": "dead"})
        assert done.wait(10)
    finally:
        server.shutdown()
        server.server_close()
    assert bodies == [{"text": "DEAD WORKER a", "worker": "a", "verdict": "dead"}] * 2
