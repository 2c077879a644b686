"""Starts one server under its guard, waits until it answers, and stops, kills and restarts it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from provision import guard, urls
from provision.kind import Cancelled, Kind, LaunchSpec, Unavailable
from provision.patience import Patience, processor_seconds

#: A server that does not answer in its time, and works, is waited for; it does not when it is idle for so long.
LONGEST_START_SECONDS, IDLE_SECONDS = 600.0, 10.0
PROBE_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 0.1
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
COLLISIONS = ("address already in use", "eaddrinuse", "already_in_use", "could not bind")


class Collision(Unavailable):
    """Another process took the port between its choice and its use."""


class Process:
    """One server, its guard and its folder. The guard stops the server when this process dies."""

    def __init__(self, kind: Kind, launch: LaunchSpec) -> None:
        self.kind = kind
        self.launch = launch
        self.pid: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the guard, and so the server, is running."""
        return self._guard is not None and self._guard.poll() is None

    def start(self, cancelled: threading.Event) -> str:
        """Start the server and return its version. Raises `Unavailable` (`Collision`: port taken) or `Cancelled`."""
        self._spawn()
        try:
            return self._wait_until_it_answers(cancelled)
        except BaseException:
            self.kill()
            raise

    def _spawn(self) -> None:
        launch, account = self.launch, self.launch.account
        base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        order = {
            "argv": launch.argv,
            "env": {"LANG": "C.UTF-8", **base, "HOME": str(launch.folder), **launch.env},
            "cwd": str(launch.folder),
            "user": [account.uid, account.gid] if account else None,
            "log": str(launch.log_path),
            "stop_signal": launch.stop_signal,
            "grace_seconds": launch.grace_seconds,
            "folder": str(launch.folder),
            "after": launch.after,
        }
        self._guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        self._guard.stdin.write(json.dumps(order).encode() + b"\n")  # not on the command line: may contain a password
        self._guard.stdin.flush()
        answer = self._guard.stdout.readline()
        self._guard.stdout.close()
        self.pid = int(answer) if answer.strip() else None

    def _wait_until_it_answers(self, cancelled: threading.Event) -> str:
        deadline = time.monotonic() + self.launch.start_seconds
        patience, latest = Patience(IDLE_SECONDS), time.monotonic() + LONGEST_START_SECONDS
        last = "it did not answer"
        # A slow start is not a missing service.
        while (now := time.monotonic()) < deadline or (
            now < latest and not patience.is_over(processor_seconds(self.pid or 0))
        ):
            if cancelled.is_set():
                raise Cancelled(self.kind.name)
            if not self.is_running:
                raise self._ended()
            try:
                version = self.kind.probe(self.launch.url, PROBE_SECONDS)
                if self.launch.management_url:
                    urls.management(self.launch.management_url, PROBE_SECONDS)
            except Unavailable as error:
                last = str(error)
            else:
                if self.is_running:  # otherwise another server answered on a port we lost
                    return version
            cancelled.wait(LOOK_AGAIN_SECONDS)
        seconds = self.launch.start_seconds
        raise Unavailable(f"{self.launch.argv[0]} did not come up within {seconds:g} s: {last}; {self._log_tail()}")

    def _ended(self) -> Unavailable:
        tail = self._log_tail()
        name = Path(self.launch.argv[0]).name if self.launch.argv[0] != "/bin/sh" else self.kind.executable
        collided = any(sign in tail.lower() for sign in COLLISIONS)
        return (Collision if collided else Unavailable)(f"{name} ended while starting; its log ends: {tail}")

    def _log_tail(self) -> str:
        try:
            lines = self.launch.log_path.read_text(errors="replace").strip().splitlines()
        except OSError:
            return "no log"
        return " | ".join(line.strip() for line in lines[-8:]) or "empty"

    def stop(self) -> None:
        """Stop the server, by SIGKILL after its grace period, and all its processes; keep its data."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.write(b"s")
            self._guard.stdin.flush()
        self._guard.wait()
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()
        self._guard, self.pid = None, None

    def kill(self) -> None:
        """Kill the server by SIGKILL, like a crash, and wait until all its processes have ended; keep its data."""
        if self.launch.kill_argv:
            subprocess.run(self.launch.kill_argv, capture_output=True, check=False, timeout=60)  # noqa: S603
        elif self.pid is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def restart(self) -> str:
        """Stop the server if it runs, and start it on the same ports and data. Raises `Unavailable`."""
        self.stop()
        try:
            return self.start(threading.Event())
        except Collision:
            return self.start(threading.Event())

    def remove(self) -> None:
        """Stop the server (kill it, if that leaves nothing behind) and remove its folder."""
        if self.launch.leaves_something:
            self.stop()
        else:
            self.kill()
        if self.launch.after:
            subprocess.run(self.launch.after, env=dict(self.launch.env), capture_output=True, check=False, timeout=60)  # noqa: S603
        shutil.rmtree(self.launch.folder, ignore_errors=True)
