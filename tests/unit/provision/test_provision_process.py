"""The guard stops its server when the owner dies; the command gets its signals and returns its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provision import account, command, guard, rabbitmq
from provision.kind import Account, Binary, Unavailable
from provision.services import KINDS
from tests.support import forked_python

pytestmark = pytest.mark.processes

# The server of these tests: it forks a child into another session, as epmd does, and then waits.
ESCAPING = "setsid sleep 1000 & echo $! > escaped; exec sleep 1000"


def eventually(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline, tick = time.monotonic() + seconds, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        tick.wait(0.02)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def guarded(folder: Path, script: str = ESCAPING) -> tuple[subprocess.Popen[bytes], int]:
    order = {
        "argv": ["/bin/sh", "-c", script],
        "env": {"PATH": os.environ["PATH"]},
        "cwd": str(folder),
        "user": None,
        "log": str(folder / "log"),
        "stop_signal": signal.SIGTERM,
        "grace_seconds": 0.2,
        "folder": str(folder),
        "after": [],
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process, int(process.stdout.readline())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "server"
    made.mkdir()
    return made


def escaped(folder: Path) -> int:
    eventually(lambda: (folder / "escaped").exists() and (folder / "escaped").read_text().strip() != "")
    return int((folder / "escaped").read_text())


def test_owner_death_stops_server_and_strays_and_removes_folder(folder: Path) -> None:
    process, pid = guarded(folder)
    stray = escaped(folder)
    process.communicate(timeout=60)
    assert not is_alive(pid)
    assert not is_alive(stray)
    assert not folder.exists()


def test_stop_request_keeps_the_folder(folder: Path) -> None:
    process, pid = guarded(folder)
    stray = escaped(folder)
    assert process.stdin
    process.stdin.write(b"s")
    process.stdin.flush()
    process.wait(60)
    process.communicate()
    assert not is_alive(pid)
    assert not is_alive(stray)
    assert folder.exists()


def test_server_that_ignores_the_stop_signal_is_killed(folder: Path) -> None:
    process, pid = guarded(folder, "trap '' TERM; echo > escaped 1; while :; do sleep 1; done")
    escaped(folder)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert not is_alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a child whose parent died")
def test_server_dies_with_a_killed_guard(folder: Path) -> None:
    process, pid = guarded(folder, "exec sleep 1000")
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: not is_alive(pid))


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_exit_code_is_the_commands(script: str, code: int) -> None:
    assert command.run(["sh", "-c", script], {}) == code


def test_command_gets_the_urls_and_no_stale_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBITMQ_MANAGEMENT_URL", "http://stale")
    script = 'test "$REDIS_URL" = redis://here && test -z "${RABBITMQ_MANAGEMENT_URL+set}"'
    assert command.run(["sh", "-c", script], {"REDIS_URL": "redis://here", "RABBITMQ_MANAGEMENT_URL": None}) == 0


def test_only_the_first_signal_interrupts() -> None:
    # A shell ignores SIGINT in background processes, which may include this one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with command.interruptible() as received:
        with pytest.raises(command.Interrupted) as raised:
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert raised.value.number == signal.SIGTERM
    signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGTERM, signal.SIGINT]


def cli(*argv: str) -> subprocess.CompletedProcess[str]:
    return forked_python.run(["-m", "provision", *argv], env=dict(os.environ))


def test_command_line_refuses_unknown_services_and_no_command() -> None:
    unknown = cli("run", "--need", "kafka", "--", "true")
    assert unknown.returncode == 2
    assert "no service is called kafka" in unknown.stderr
    empty = cli("run")
    assert empty.returncode == 2
    assert "needs a command" in empty.stderr


def test_missing_command_exits_127() -> None:
    done = cli("run", "--need", "", "--", "antenna-no-such-command")
    assert done.returncode == 127
    assert "antenna-no-such-command" in done.stderr


def test_debian_wrapper_is_replaced_by_the_wrapped_script(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    wrapper, wrapped = tmp_path / "lib" / "rabbitmq-script-wrapper", tmp_path / "lib" / "rabbitmq-server"
    wrapper.touch()
    wrapped.touch()
    found = tmp_path / "rabbitmq-server"
    found.symlink_to(wrapper)
    assert rabbitmq.beneath_wrapper(found) == wrapped
    assert rabbitmq.beneath_wrapper(wrapped) == wrapped


def test_a_private_rabbitmq_shares_nothing_with_the_machine(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first = rabbitmq.prepare(Path("rabbitmq-server"), tmp_path / "a", None)
    (tmp_path / "b").mkdir()
    second = rabbitmq.prepare(Path("rabbitmq-server"), tmp_path / "b", None)
    for name in ("ERL_EPMD_PORT", "RABBITMQ_DIST_PORT", "RABBITMQ_MNESIA_BASE", "HOME"):
        assert first.env[name] != second.env[name]
    configuration = (tmp_path / "a" / "rabbitmq.conf").read_text()
    assert f"listeners.tcp.1 = 127.0.0.1:{first.port}" in configuration
    assert "management.tcp.ip = 127.0.0.1" in configuration
    assert (tmp_path / "a" / ".erlang.cookie").stat().st_mode & 0o777 == 0o400
    assert first.url not in str(first.env)


def test_executable_below_a_closed_folder_is_unreachable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    binary = closed / "server"
    binary.touch(0o755)
    other = Account("other", 12345, 12345)
    closed.chmod(0o700)
    assert not account.can_reach(binary, other)
    assert account.can_reach(Path("/bin/sh"), other)


def test_unreachable_installation_is_copied_if_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    (source / "pg" / "bin").mkdir(parents=True)
    folder.mkdir()
    binary = source / "pg" / "bin" / "postgres"
    binary.touch(0o755)
    other = Account("other", 12345, 12345)
    monkeypatch.setattr(account, "is_root", lambda: True)
    monkeypatch.setattr(account, "candidates", lambda kind: [other])
    monkeypatch.setattr(account, "can_reach", lambda path, _: path == folder)
    found = Binary(binary, "wheel", root=source, keeps=("pg",))
    path, user = account.settle(KINDS["postgres"], found, folder)
    assert path == folder / "installation" / "pg" / "bin" / "postgres"
    assert path.exists()
    assert user == other
    assert account.settle(KINDS["redis"], found, folder) == (binary, None)


def test_postgres_without_another_user_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "is_root", lambda: True)
    monkeypatch.setattr(account, "candidates", lambda kind: [])
    with pytest.raises(Unavailable, match="refuses to run as root"):
        account.settle(KINDS["postgres"], Binary(Path("/bin/true"), "PATH"), tmp_path)
