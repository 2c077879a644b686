"""Runs several commands under one parent until one ends or a signal stops all: one worker per queue, on a laptop."""

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TextIO

#: What the first, second and third request to stop send: Celery's warm shutdown, its cold one, and the end.
STOPS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)

#: How often ended children and signals are looked for while nothing is printed.
POLL_SECONDS = 0.2

#: Time for the output that is left when a child has ended.
DRAIN_SECONDS = 5.0

PR_SET_PDEATHSIG = 1  # man 2 prctl; Linux only.


@dataclass(frozen=True)
class Command:
    """One command: the name that precedes each line of its output, and the seconds that it has to stop."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    grace_seconds: float


@dataclass
class Child:
    """One running command. ``rest`` is the beginning of a line whose end is still to come."""

    command: Command
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    rest: bytes = b""


class ProcessGroup:
    """The children of one parent; each leads a process group, so that a terminal's Ctrl-C reaches the parent alone."""

    def __init__(self, commands: Sequence[Command], out: TextIO = sys.stdout) -> None:
        self._commands, self._out = commands, out
        self._width = max(len(command.name) for command in commands)
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        self._requested = self._sent = 0
        self._stopped_at = 0.0

    def run(self) -> int:
        """Start all, print their output line by line, and return when all have ended.

        The exit code is 0 after a signal. A command that ends by itself is named, stops the others, and its exit code
        is returned: 128 and the signal's number if a signal ended it, 1 instead of 0.
        """
        code = 0
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, self._request_stop) for number in handled]
        try:
            self._start()
            while self._children:
                self._print_output(POLL_SECONDS)
                code = self._reap() or code
                self._stop()
        finally:
            for child in self._children:
                _kill(child)
            for number, handler in zip(handled, before, strict=True):
                signal.signal(number, handler)
            self._selector.close()
        return code

    def _start(self) -> None:
        prepare = _preparation()
        for command in self._commands:
            process = subprocess.Popen(  # noqa: S603 - our own command lines.
                list(command.argv),
                env={**command.environment, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=prepare,
            )
            if process.stdout is None:
                raise RuntimeError("Popen made no pipe")
            child = Child(command, process, process.stdout)
            self._children.append(child)
            self._selector.register(child.output, selectors.EVENT_READ, child)

    def _request_stop(self, *_: object) -> None:
        self._requested += 1

    def _stop(self) -> None:
        """Send what was requested, and kill what has not stopped in its time."""
        while self._sent < min(self._requested, len(STOPS)):
            number = STOPS[self._sent]
            self._sent += 1
            self._stopped_at = self._stopped_at or time.monotonic()
            self._say(f"{number.name} to {', '.join(child.command.name for child in self._children)}")
            for child in self._children:
                if number is signal.SIGKILL:
                    _kill(child)
                else:
                    child.process.send_signal(number)
        for child in self._children:
            if self._stopped_at and time.monotonic() > self._stopped_at + child.command.grace_seconds:
                _kill(child)

    def _reap(self) -> int:
        """Forget the children that have ended; return a code if one was not asked to."""
        code = 0
        for child in [each for each in self._children if each.process.poll() is not None]:
            _kill(child)  # What it started and left.
            self._drain(child)
            self._children.remove(child)
            ended = child.process.returncode
            if not self._requested:
                code = 128 - ended if ended < 0 else ended or 1
                self._say(f"{child.command.name} ended with exit code {ended}; stopping the others")
                self._requested = 1
        return code

    def _print_output(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            child: Child = key.data
            chunk = os.read(child.output.fileno(), 65536)
            *lines, child.rest = (child.rest + chunk).split(b"\n")
            if not chunk:
                self._selector.unregister(child.output)
                lines = [child.rest] if child.rest else []
            for line in lines:
                self._print(child.command.name, line.decode(errors="replace"))

    def _drain(self, child: Child) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while child.output in {key.fileobj for key in self._selector.get_map().values()}:
            if time.monotonic() > deadline:
                self._selector.unregister(child.output)
            self._print_output(POLL_SECONDS)
        child.output.close()

    def _say(self, sentence: str) -> None:
        self._print("all", sentence)

    def _print(self, name: str, line: str) -> None:
        try:
            print(f"{name:{self._width}} | {line}", file=self._out, flush=True)
        except BrokenPipeError:  # Its reader has ended, like `head`. Python would flush it again at its own end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())
            self._requested = max(self._requested, 1)


def _kill(child: Child) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)


def _preparation() -> Callable[[], None]:
    """Return what a child calls before it becomes its command: it obeys the signals that stop it, and on Linux it is
    killed when its parent is.

    A shell starts what it runs in the background with SIGINT and SIGQUIT ignored, which a command would inherit: the
    second request to stop would have no effect.
    """
    library, parent = ctypes.CDLL(None), os.getpid()
    dies_with_parent = hasattr(library, "prctl")

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        if dies_with_parent:
            library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    return prepare
