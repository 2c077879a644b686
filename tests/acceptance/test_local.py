"""`make run` and `make demo KEEP=1` as a newcomer uses them: started, looked at, changed, and ended with Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from demo.client import Client
from provision.guard import descendants
from provision.ports import free_ports
from tests.support.checkout import copy_checkout
from tests.support.place import ROOT, until
from tests.support.services import URLS

#: Each wait ends with its condition, or with the command: a busy machine takes minutes to start all the processes.
SECONDS = 400
pytestmark = pytest.mark.timeout(2 * SECONDS)

CHANGED = "processing_service/__init__.py"


class Command:
    """A command that runs in the foreground of a terminal; ``lines`` is what it has printed."""

    def __init__(self, folder: Path, *argv: str) -> None:
        # Its many processes share compiled code, whatever the environment says.
        kept = os.environ.keys() - {*URLS, "COLUMNS", "PYTHONDONTWRITEBYTECODE"}
        self.popen = subprocess.Popen(
            [sys.executable, *argv],
            cwd=folder,
            env={name: os.environ[name] for name in kept} | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            for line in lines:
                self.lines.append(line)

    def said(self, pattern: str) -> re.Match[str] | None:
        """Return the first match in what was printed."""
        return re.search(pattern, "".join(self.lines))

    def await_line(self, pattern: str, seconds: float = SECONDS) -> re.Match[str]:
        """Return the first match as soon as it is printed."""
        found: re.Match[str] = until(
            lambda: self.said(pattern) or self._check(), seconds, lambda: "".join(self.lines[-40:])
        )
        return found

    def _check(self) -> None:
        assert self.popen.poll() is None, "".join(self.lines[-40:])

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit status."""
        self.popen.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended and all it has printed is read."""
        code = self.popen.wait(SECONDS)
        self._reader.join(20)
        return code


@contextmanager
def running(folder: Path, *argv: str) -> Iterator[Command]:
    command = Command(folder, *argv)
    try:
        yield command
    finally:
        if command.popen.poll() is None:
            os.killpg(command.popen.pid, signal.SIGKILL)
        command.wait()


@contextmanager
def signed_in(web: str, email: str, password: str) -> Iterator[httpx.Client]:
    """A browser that has used the form to sign in."""
    with httpx.Client(base_url=web, follow_redirects=True, timeout=30) as browser:
        browser.get("/admin/login/")
        form = {"username": email, "password": password, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        answer = browser.post("/admin/login/?next=/admin/queues/", data=form)
        assert (answer.status_code, answer.url.path) == (200, "/admin/queues/")
        yield browser


def await_figures(browser: httpx.Client, *needles: str) -> None:
    """Wait until the overview shows everything."""

    def missing() -> list[str]:
        shown = browser.get("/admin/queues/?live=overview").text
        return [needle for needle in needles if needle not in shown]

    until(lambda: not missing(), SECONDS, lambda: f"not shown: {missing()}")


def assert_all_ended(pids: list[int], port: int) -> None:
    until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], SECONDS, "every process has ended")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/livez")


def test_make_run_starts_everything_restarts_it_on_a_change_and_ends_it(tmp_path: Path) -> None:
    checkout, [port] = copy_checkout(tmp_path / "checkout"), free_ports(1)
    web = f"http://127.0.0.1:{port}"
    with running(checkout, "-m", "demo.local", "--port", str(port), "--frames", "2") as command:
        job = int(command.await_line(r"a job to run +\S+/job/(\d+)/change/")[1])
        email, password = command.await_line(r"sign in +(\S+) +password: (\S+)").groups()
        with signed_in(web, email, password) as browser:
            await_figures(browser, *(f"antenna{end}" for end in ("-ingest", "-housekeeping", "-interactive")))
            run_job(web, email, password, job)
            pids = descendants(command.popen.pid)
            with (checkout / CHANGED).open("a") as file:
                file.write("# A change.\n")
            command.await_line(rf"changed: {CHANGED}; restarting")
            until(lambda: not left(command, pids), SECONDS, lambda: f"not restarted: {left(command, pids)}")
            until(lambda: _lives(web), SECONDS, "web is back")
            await_figures(browser, "antenna-ingest")
        pids = descendants(command.popen.pid)
        assert command.interrupt() == 0
        assert command.said("everything that was started has ended")
        assert_all_ended(pids, port)
    assert (checkout / ".antenna/run/login.json").exists(), "the data stays"


def left(command: Command, pids: list[int]) -> list[str]:
    """Return the command lines of what a change of the code should have restarted: all of it but NATS and its guard."""
    files = [Path(f"/proc/{pid}/cmdline") for pid in descendants(command.popen.pid) if pid in pids]
    lines = [file.read_bytes().replace(b"\0", b" ").decode() for file in files if file.exists()]
    return [line for line in lines if not {"nats-server", "guard.py"} & set(line.replace("/", " ").split())]


def run_job(web: str, email: str, password: str, job: int) -> None:
    client = Client(web)
    try:
        client.log_in(email, password)
        client.post(f"jobs/{job}/run/")
        until(lambda: client.get(f"jobs/{job}/")["status"] == "SUCCESS", SECONDS, "the job ends")
    finally:
        client.close()


def _lives(web: str) -> bool:
    try:
        return httpx.get(f"{web}/livez", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_demo_that_is_kept_goes_on_after_its_checks(tmp_path: Path) -> None:
    argv = ["-m", "demo", "--keep", "--frames", "2", "--folder", str(tmp_path / "demo")]
    with running(ROOT, *argv) as command:
        page = command.await_line(r"queues +(http\S+)/admin/queues/")[1]
        report = command.await_line(r"report +file://(\S+)")[1]
        email, password = command.await_line(r"sign in +(\S+) +password: (\S+)").groups()
        command.await_line(r"logs +\S+")
        assert "It goes on running" in "".join(command.lines)
        assert Path(report).read_text(encoding="utf-8").startswith("<!doctype html>")
        with signed_in(page, email, password) as browser:
            await_figures(browser, "antenna-ingest", "antenna-interactive")
        pids = descendants(command.popen.pid)
        assert len(pids) >= 6, "web, workers and beat go on"
        assert command.interrupt() == 0, "".join(command.lines[-20:])
        assert_all_ended(pids, int(page.rpartition(":")[2]))


def test_make_runs_what_is_tested_here() -> None:
    def planned(*argv: str) -> str:
        done = subprocess.run(["make", "--dry-run", *argv], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    assert "-m demo.local --port '8123'" in planned("run", "PORT=8123")
    assert re.search(r"-m demo +--keep", planned("demo", "KEEP=1"))
