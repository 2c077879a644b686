"""`make run`: its login, its port, its parts, and what restarts them."""

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ami.topology import restarts
from ami.topology.process_group import Command, ProcessGroup
from demo.brokers import leave_the_machine_alone
from demo.client import Client
from demo.environment import LocalEnvironment
from demo.local import parts
from demo.local.__main__ import watch
from demo.local.login import Login
from demo.local.output import NAME_WIDTH, OWN, Output
from demo.local.parts import LISTS, POLLS, PartFailed
from demo.local.place import LocalPlace, NotUsable
from demo.local.source_changes import SourceChanges
from demo.project import PIPELINE
from provision.patience import Patience
from provision.ports import free_ports
from provision.steps import SKIP_VARIABLE
from tests.support.place import ROOT, until

SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def test_login_is_made_once_and_its_file_is_the_users_alone(tmp_path: Path):
    first = Login.kept(tmp_path)
    assert len(first.password) >= 12
    assert Login.kept(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "login.json").stat().st_mode) == 0o600
    (tmp_path / "login.json").write_text("[]")
    assert Login.kept(tmp_path).password != first.password


def test_port_in_use_is_refused_with_the_remedy(tmp_path: Path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        place = LocalPlace(tmp_path, server.getsockname()[1])
        with pytest.raises(NotUsable, match=r"is in use by another program.*PORT=8001"):
            place.claim(stack)


def test_second_run_in_the_same_folder_is_refused(tmp_path: Path):
    with ExitStack() as stack:
        [port, other] = free_ports(2)
        LocalPlace(tmp_path, port).claim(stack)
        with pytest.raises(NotUsable, match="runs already"):
            LocalPlace(tmp_path, other).claim(stack)


def test_changed_new_and_removed_files_are_told_once_they_are_settled(tmp_path: Path):
    folder = tmp_path / "ami"
    folder.mkdir()
    (folder / "kept.py").touch()
    (folder / "removed.py").touch()
    changes = SourceChanges(tmp_path, ("ami",))
    assert changes.settled() == []
    os.utime(folder / "kept.py", (1, 1))
    (folder / "new.py").touch()
    (folder / "removed.py").unlink()
    (folder / "notes.txt").touch()
    assert changes.settled() == []
    assert changes.settled() == ["ami/kept.py", "ami/new.py", "ami/removed.py"]
    assert changes.settled() == []


def test_polls_and_lists_are_not_printed():
    import re

    for line in (
        '[25/Nov/2026 22:57:57] "GET /api/v2/jobs/?ids_only=1 HTTP/1.1" 200 24',
        '[25/Nov/2026 22:57:57] "GET /admin/queues/?live=overview HTTP/1.1" 304 0',
        '[25/Nov/2026 22:57:57] "GET /livez HTTP/1.1" 200 3',
        "",
    ):
        assert re.search(POLLS, line), line
    for line in ('"GET /api/v2/jobs/9/ HTTP/1.1" 404 23', '"POST /api/v2/jobs/9/run/ HTTP/1.1" 202 23', "Traceback"):
        assert not re.search(POLLS, line), line
    assert re.search(LISTS, "  . ami.jobs.tasks.run_job")
    assert not re.search(LISTS, "ready.")


def command(name: str, code: str, **more: Any) -> Command:
    return Command(name, [sys.executable, "-c", code], os.environ, **{"grace_seconds": 8.0, **more})


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    made = ProcessGroup(out=Output(), name=f"{OWN:{NAME_WIDTH}}")
    yield made
    made.stop()


@pytest.mark.processes
def test_start_that_waits_for_a_process_that_stays_down_says_so(
    group: ProcessGroup, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(restarts, "WAITS_SECONDS", (0.0, 0.0, 0.0))
    group.start(command("web", SLEEPER), command("ingest", "print('no such queue'); raise SystemExit(3)"))
    with pytest.raises(PartFailed, match="the workers: ingest does not run"):
        parts.until(group, Output(), "the workers", lambda: False)
    shown = capfd.readouterr().out
    assert "ingest       | no such queue" in shown
    assert "ingest ended with exit code 3 after 3 restarts in 10 minutes; it stays down, the others go on" in shown


@pytest.mark.processes
def test_start_is_waited_for_as_long_as_something_moves(group: ProcessGroup, monkeypatch: pytest.MonkeyPatch):
    group.start(command("web", SLEEPER))
    monkeypatch.setattr(parts, "Patience", lambda: Patience(0.0))
    moves = itertools.count()
    assert parts.until(group, Output(), "web", lambda: next(moves) > 6, lambda: next(moves)), "it moves at every look"
    with pytest.raises(PartFailed, match="web: nothing has moved"):
        parts.until(group, Output(), "web", lambda: False, lambda: "the same")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.processes
def test_work_of_who_waits_is_no_sign_that_something_moves():
    code = "import time\nfrom provision.patience import processor_seconds as found\nbefore = found()\n"
    code += "while time.process_time() < 1.3: pass\nraise SystemExit(found() - before)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.processes
def test_change_of_the_code_restarts_all(group: ProcessGroup, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "ami").mkdir()
    starts = tmp_path / "starts"
    code = f"import os, time\nopen({str(starts)!r}, 'a').write(f'{{os.getpid()}} ')\ntime.sleep(600)"
    group.start(command("web", code))
    until(lambda: group.step() and starts.exists(), 20)

    class Ended(Exception):
        pass

    class Changes(SourceChanges):
        def settled(self) -> list[str]:
            if len(starts.read_text().split()) == 2:
                raise Ended
            if not (new := tmp_path / "ami/new.py").exists():
                new.touch()
            return super().settled()

    with pytest.raises(Ended):
        watch(group, Changes(tmp_path, ("ami",)), Output())
    first, second = map(int, starts.read_text().split())
    assert first != second
    assert not Path(f"/proc/{first}").exists()
    assert "changed: ami/new.py; restarting" in capfd.readouterr().out


@pytest.mark.processes
def test_who_posts_results_is_stopped_before_who_takes_them(capfd: pytest.CaptureFixture[str]):
    group = ProcessGroup(out=Output(), name=OWN)
    group.start(command("web", SLEEPER, stage=parts.WEB), command("processing", SLEEPER, stage=parts.PROCESSING))
    assert group.stop() == 0
    shown = capfd.readouterr().out
    assert shown.index("SIGTERM to processing") < shown.index("SIGTERM to web")


@pytest.mark.processes
def test_command_that_ignores_the_request_to_stop_is_killed(capfd: pytest.CaptureFixture[str]):
    code = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPER}"
    group = ProcessGroup(out=Output(), name=OWN)
    group.start(command("web", code, grace_seconds=0.3))
    popen = group._children[0].process
    until(lambda: group.step() and "| up" in capfd.readouterr().out, 20)
    group.stop()
    assert popen.returncode == -signal.SIGKILL


def test_demos_install_nothing_on_the_machine_unless_they_are_told(monkeypatch: pytest.MonkeyPatch):
    for given, found in ((None, "apt"), ("", ""), ("wheel", "wheel")):
        monkeypatch.delenv(SKIP_VARIABLE, raising=False)
        if given is not None:
            monkeypatch.setenv(SKIP_VARIABLE, given)
        leave_the_machine_alone()
        assert os.environ[SKIP_VARIABLE] == found


def test_own_addresses_are_reached_past_the_networks_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Web(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "intranet.example")
    with HTTPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        for name, value in LocalEnvironment(tmp_path, server.server_port, 1).variables({}).items():
            monkeypatch.setenv(name, value)
        assert parts.web_lives(f"http://127.0.0.1:{server.server_port}")
    assert os.environ["NO_PROXY"].startswith("intranet.example,")


class StartedAgain(BaseHTTPRequestHandler):
    """Answers as the API does, and ends the connection at the first look at each address, as a killed web does."""

    def do_GET(self) -> None:
        if self.path in self.server.seen:  # type: ignore[attr-defined]
            self._answer({"status": "SUCCESS", "results": [{"id": 3, "slug": PIPELINE}]})
        self.server.seen.append(self.path)  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer({"job_id": 1, "id": 9})

    def _answer(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


def test_web_that_is_started_again_does_not_end_the_first_run():
    from demo.local import seed

    with HTTPServer(("127.0.0.1", 0), StartedAgain) as server:
        web = Client(f"http://127.0.0.1:{server.server_port}")
        server.seen = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert seed.job(web, seed.Seeded(1, (1,), "token"), ProcessGroup(out=Output(), name=OWN), Output()) == 9
        assert len(set(server.seen)) == 2  # type: ignore[attr-defined]
        server.shutdown()
