"""Runs one server beside its owner, and ends it when told to, or when the owner is gone, however the owner
went.

It is started as a script of its own (standard library only) in a session of its own, so a Ctrl-C at the
terminal does not reach the server. Its first line on stdin is the order, as JSON: `argv`, `env`, `cwd`,
`user` ([uid, gid] or null), `log`, `stop_signal`, `grace_seconds`, `folder`, `after`. It answers one line on
stdout, the server's process id. The byte `s` on stdin (or SIGTERM) means: stop the server. The end of stdin,
or another parent, means that the owner died: stop it and remove its folder. On Linux it adopts what its
server forks away (epmd does), so nothing escapes; what is left when the server ends is killed.
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
    """Sets a process attribute on Linux; elsewhere does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def dies_with_parent(death_signal: int) -> Callable[[], None]:
    """A `preexec_fn` that asks the kernel for `death_signal` when the thread that forked ends; also unblocks
    all signals.
    """
    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def after_fork() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if library is not None:
            library.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)

    return after_fork


def descendants(of: int) -> list[int]:
    """The process ids below `of`, itself left out; empty where there is no /proc."""
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
    """The server, as the ordered user, in a session of its own, its output in its log."""
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
    """Kills what the server left: its process group, and all that the kernel handed to us."""
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


def watch(server: subprocess.Popen[bytes], wake: int, owner: int, told: list[int]) -> bool:
    """Waits for the end of the server or an order to end it; true when the owner has died."""
    while server.poll() is None and not told:
        ready, _, _ = select.select([0, wake], [], [], LOOK_AGAIN_SECONDS)
        if wake in ready:
            os.read(wake, 512)
        if 0 in ready:
            return os.read(0, 1) == b""
        if os.getppid() != owner:  # a forked sibling may hold our stdin open after the owner died
            return True
    return False


def stop(server: subprocess.Popen[bytes], stop_signal: int, grace_seconds: float) -> None:
    """Asks the server to end, and kills it after its grace."""
    if server.poll() is None:
        server.send_signal(stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(grace_seconds)
    if server.poll() is None:
        server.kill()
        server.wait()


def read_order() -> dict[str, Any]:
    """The order on the first line of stdin; ends us if the owner went before it was written."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    order: dict[str, Any] = json.loads(line)
    return order


def main() -> int:
    """The server's exit code, or 128 + the signal that ended it."""
    owner = os.getppid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    told: list[int] = []
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = read_order()
    server = start(order)
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{server.pid}\n".encode())
    orphaned = watch(server, wake, owner, told)
    stop(server, order["stop_signal"], order["grace_seconds"])
    sweep(server)
    if order["after"]:
        subprocess.run(order["after"], env=order["env"], cwd=order["cwd"], capture_output=True, timeout=60, check=False)  # noqa: S603
    if orphaned:
        shutil.rmtree(order["folder"], ignore_errors=True)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    sys.exit(main())
