"""Runs one server for its owner, and stops it on request or when the owner dies, even by SIGKILL.

It is a script (standard library only) in its own session, so Ctrl-C at the terminal does not reach the server. The
first line on stdin is the order, as JSON: `argv`, `env`, `cwd`, `user` ([uid, gid] or null), `log`, `stop_signal`,
`grace_seconds`, `folder`, `after`. It prints one line, the server's process id. The byte `s` on stdin (or SIGTERM)
stops the server. The end of stdin, or a new parent, means that the owner died: it stops the server and removes its
folder. On Linux it adopts processes that the server forks away (epmd does); those left when the server ends are
killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_AGAIN_SECONDS = 1.0


def prctl(option: int, value: int) -> None:
    """Set a process attribute on Linux; do nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def dies_with_parent(death_signal: int) -> Callable[[], None]:
    """A `preexec_fn`: the kernel sends `death_signal` when the forking thread ends; also unblocks all signals."""
    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def after_fork() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if library is not None:
            library.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)

    return after_fork


def descendants(of: int) -> list[int]:
    """The process ids of all descendants of `of`; empty without /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not name.isdigit():
            continue
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat,
        ):
            parent = int(stat.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found, unseen = [], [of]
    while unseen:
        below = children.get(unseen.pop(), [])
        found += below
        unseen += below
    return found


def start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the server in its own session, its output in its log."""
    user = order["user"]
    identity: dict[str, Any] = {"user": user[0], "group": user[1], "extra_groups": []} if user else {}
    with open(order["log"], "ab") as log:
        return subprocess.Popen(  # noqa: S603
            order["argv"],
            env=order["env"],
            cwd=order["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # Runs after setuid, which would clear it. There are no threads here.
            preexec_fn=dies_with_parent(signal.SIGKILL),  # noqa: PLW1509
            **identity,
        )


def sweep(server: subprocess.Popen[bytes]) -> None:
    """Kill what the server left: its process group, and all adopted processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def watch(server: subprocess.Popen[bytes], wake: int, owner: int, stop_signals: list[int]) -> bool:
    """Wait for the server's end or a request to stop it; return True if the owner has died."""
    while server.poll() is None and not stop_signals:
        ready, _, _ = select.select([0, wake], [], [], LOOK_AGAIN_SECONDS)
        if wake in ready:
            os.read(wake, 512)
        if 0 in ready:
            return os.read(0, 1) == b""
        if os.getppid() != owner:  # a forked sibling may keep our stdin open after the owner died
            return True
    return False


def stop(server: subprocess.Popen[bytes], stop_signal: int, grace_seconds: float) -> None:
    """Stop the server, with SIGKILL after its grace period."""
    if server.poll() is None:
        server.send_signal(stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(grace_seconds)
    if server.poll() is None:
        server.kill()
        server.wait()


def read_order() -> dict[str, Any]:
    """The order on the first line of stdin; exits if the owner died before writing it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    order: dict[str, Any] = json.loads(line)
    return order


def main() -> int:
    """The server's exit code, or 128 + its signal."""
    owner = os.getppid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    stop_signals: list[int] = []
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: stop_signals.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = read_order()
    server = start(order)
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{server.pid}\n".encode())
    orphaned = watch(server, wake, owner, stop_signals)
    stop(server, order["stop_signal"], order["grace_seconds"])
    sweep(server)
    if order["after"]:
        subprocess.run(order["after"], env=order["env"], cwd=order["cwd"], capture_output=True, timeout=60, check=False)  # noqa: S603
    if orphaned:
        shutil.rmtree(order["folder"], ignore_errors=True)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    sys.exit(main())
