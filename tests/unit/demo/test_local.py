"""`make run`: its login, its port, its parts, and what restarts them."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.local.login import Login
from demo.local.output import Output
from demo.local.parts import LISTS, POLLS
from demo.local.place import LocalPlace, NotUsable
from demo.local.source_changes import SourceChanges
from demo.local.supervisor import Part, PartFailed, Supervisor
from provision.ports import free_ports
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
    assert re.search(LISTS, "ingest       |   . ami.jobs.tasks.run_job")
    assert not re.search(LISTS, "ingest       | ready.")


@pytest.fixture
def supervisor():
    found = Supervisor(dict(os.environ), Output())
    yield found
    found.stop()


def part(name: str, code: str) -> Part:
    return Part(name, [sys.executable, "-c", code])


@pytest.mark.processes
def test_lines_follow_their_parts_name_and_a_crash_is_said(supervisor: Supervisor, capfd: pytest.CaptureFixture[str]):
    supervisor.start(part("web", SLEEPER), part("workers", "print('no such queue'); raise SystemExit(3)"))
    shown = ""

    def is_said() -> bool:
        nonlocal shown
        shown += capfd.readouterr().out
        supervisor._say_ended()
        return "workers ended with exit code 3" in shown and "web          | up" in shown

    until(is_said, 20)
    assert "workers      | no such queue" in shown
    assert shown.count("workers ended with exit code 3") == 1
    with pytest.raises(PartFailed, match="workers ended with exit code 3"):
        supervisor.check()


@pytest.mark.processes
def test_change_of_the_code_restarts_all_parts(supervisor: Supervisor, tmp_path: Path, capfd):
    (tmp_path / "ami").mkdir()
    starts = tmp_path / "starts"
    code = f"import os, time\nopen({str(starts)!r}, 'a').write(f'{{os.getpid()}} ')\ntime.sleep(600)"
    supervisor.start(part("web", code))
    until(starts.exists, 20)

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
        supervisor.watch(Changes(tmp_path, ("ami",)))
    first, second = map(int, starts.read_text().split())
    assert first != second
    assert not Path(f"/proc/{first}").exists()
    assert "changed: ami/new.py; restarting" in capfd.readouterr().out


@pytest.mark.processes
def test_nothing_runs_on_after_the_end_or_the_death_of_the_supervisor(tmp_path: Path):
    code = (
        "import os, sys, time\nfrom demo.local.output import Output\n"
        "from demo.local.supervisor import Part, Supervisor\n"
        "found = Supervisor(dict(os.environ), Output())\n"
        f"found.start(Part('web', [sys.executable, '-c', {SLEEPER!r}]))\n"
        "print(found._running[0].popen.pid, flush=True)\ntime.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        lines = [parent.stdout.readline() for _ in range(2)]
        pid = next(int(line) for line in lines if line.strip().isdecimal())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(), 20)
    finally:
        parent.kill()
        parent.stdout.close()
        parent.wait()


@pytest.mark.processes
def test_part_that_ignores_the_request_to_stop_is_killed(capfd):
    code = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPER}"
    supervisor = Supervisor(dict(os.environ), Output())
    supervisor.start(Part("web", [sys.executable, "-c", code], stop_seconds=0.3))
    popen = supervisor._running[0].popen
    until(lambda: "| up" in capfd.readouterr().out, 20)
    began = time.monotonic()
    supervisor.stop()
    assert popen.returncode == -signal.SIGKILL
    assert time.monotonic() - began < 10
