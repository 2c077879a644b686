"""The demo's processes: each in its own process group, its output in a file, stopped with the demo."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STOP_SECONDS = 15.0


class ProcessEnded(Exception):
    """A process of the demo ended unexpectedly; the message has its name and last lines."""


@dataclass
class Running:
    """A running process and its output file."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise `ProcessEnded` if it has ended."""
        code = self.popen.poll()
        if code is None:
            return
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise ProcessEnded(f"{self.name} ended with exit code {code}. The end of {self.log}:\n{tail}")


@dataclass
class Processes:
    """Starts processes, and stops all of them, newest first."""

    environment: Mapping[str, str]
    folder: Path
    running: list[Running] = field(default_factory=list)

    def start(self, name: str, argv: Sequence[str], **environment: str) -> Running:
        """Start a process; its output goes to ``<folder>/<name>.log``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(  # noqa: S603 - argv is ours
                list(argv),
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Running(name, popen, log)
        self.running.append(process)
        return process

    def check(self) -> None:
        """Raise `ProcessEnded` if any process has ended."""
        for process in self.running:
            process.check()

    def stop(self) -> None:
        """Stop every process: SIGTERM to all, then SIGKILL to the remaining groups."""
        for process in reversed(self.running):
            with contextlib.suppress(ProcessLookupError):
                process.popen.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait()
        self.running.clear()
