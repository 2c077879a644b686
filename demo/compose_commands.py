"""Compose commands of the demo: their output in a log file, a line for a long one, the log's end when one fails."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

#: How often a command that still runs is reported where there is no terminal.
LINE_SECONDS = 30.0
STOP_SECONDS = 20
SHOWN_LINES = 15


class ComposeFailed(Exception):
    """A compose command failed; the message has its purpose, its exit code and the end of its output."""


@dataclass
class ComposeCommands:
    """Runs commands of one compose project. ``prefix`` is what precedes each command."""

    prefix: Sequence[str]
    log: Path
    console: Console

    def say(self, line: str) -> None:
        """Print a line."""
        self.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)

    def step(self, what: str, *arguments: str, interruptible: bool = True) -> float:
        """Run a command quietly and return its seconds. Without ``interruptible`` it also survives Ctrl-C.

        Raises:
            ComposeFailed: its exit code is not 0.
        """
        began, start = time.monotonic(), self._size()
        with self.log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - argv is ours
                [*self.prefix, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=not interruptible,
            )
            with _ended_with(process):
                code = self._awaited(process, what)
        if code:
            raise ComposeFailed(f"{what} ended with exit code {code}. {self._end_since(start)}")
        return time.monotonic() - began

    def attached(self, *arguments: str) -> int:
        """Run a command with this terminal and return its exit code; what Compose itself prints goes to the log."""
        start = self._size()
        with self.log.open("ab") as errors:
            process = subprocess.Popen([*self.prefix, *arguments], stderr=errors)  # noqa: S603
            with _ended_with(process):
                code = process.wait()
        if code and self._size() > start:
            self.say(self._end_since(start))
        return code

    def _awaited(self, process: subprocess.Popen[bytes], what: str) -> int:
        """Wait, with a spinner on a terminal and a line now and then elsewhere; return the exit code."""
        if self.console.is_terminal:
            with self.console.status(what):
                return process.wait()
        began = time.monotonic()
        while True:
            try:
                return process.wait(LINE_SECONDS)
            except subprocess.TimeoutExpired:
                self.say(f"{what}: {time.monotonic() - began:.0f} s")

    def _size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def _end_since(self, start: int) -> str:
        lines = self.log.read_bytes()[start:].decode(errors="replace").splitlines()[-SHOWN_LINES:]
        return "\n".join([f"The end of {self.log}:", *lines])


@contextlib.contextmanager
def _ended_with(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let no command outlive this block: one that still creates containers would race with their removal."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
