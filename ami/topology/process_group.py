"""Runs several commands under one parent, starts one again that ends or freezes, and stops all at a signal."""

import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

from ami.topology import restarts
from ami.topology.restarts import Freezes, Restarts

#: What the first, second and third request to stop send: Celery's warm shutdown, its cold one, and the end.
STOPS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: How often ended children and signals are looked for while nothing is printed.
POLL_SECONDS = 0.2

#: Time for the output that is left when a child has ended.
DRAIN_SECONDS = 5.0

PR_SET_PDEATHSIG = 1  # man 2 prctl; Linux only.


@dataclass(frozen=True)
class Command:
    """One command: the name that precedes each line of its output, and the seconds that it has to stop.

    ``pulse``: the file that a worker's loop renews. Lines that ``quiet`` matches are not printed. Of several stages
    the last is stopped first.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    grace_seconds: float
    pulse: Path | None = None
    quiet: str = r"(?!)"
    stage: int = 0


@dataclass
class Child:
    """One running command. ``rest`` is the beginning of a line whose end is still to come; ``sent`` counts `STOPS`."""

    command: Command
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    rest: bytes = b""
    sent: int = 0
    asked_at: float = 0.0


class ProcessGroup:
    """The children of one parent; each leads a process group, so that a terminal's Ctrl-C reaches the parent alone.

    ``down``: the exit code of each command that ended too often and is not started again.
    """

    def __init__(self, commands: Sequence[Command] = (), out: TextIO = sys.stdout, name: str = "all") -> None:
        self._out, self._name = out, name
        self._width = max((len(command.name) for command in commands), default=len(name))
        self._selector = selectors.DefaultSelector()
        self._commands = list(commands)
        self._children: list[Child] = []
        self._restarts: dict[str, Restarts] = {}
        self._due: dict[str, tuple[float, Command]] = {}
        self._freezes = Freezes()
        self._requested = 0
        self.down: dict[str, int] = {}

    def run(self) -> int:
        """Start all, and return when all have ended: the first signal stops them, further ones insist.

        The exit code is 0, or that of the first command that was given up: 128 and the signal's number if a signal
        ended it, 1 instead of 0.
        """
        with self._signals():
            self._start(self._commands)
            self._run()
        return next(iter(self.down.values()), 0)

    def start(self, *commands: Command) -> None:
        """Start more commands; the caller calls `step`."""
        self._width = max(self._width, *(len(command.name) for command in commands))
        self._commands += commands
        self._start(commands)

    def step(self, seconds: float = POLL_SECONDS) -> bool:
        """Print what comes within ``seconds``, and start again what ended or froze; False if all shall stop."""
        self._kill_frozen()
        self._reap()
        if self._requested:
            self._due.clear()
        for name, (due, command) in list(self._due.items()):
            if time.monotonic() >= due:
                del self._due[name]
                self._start([command])
        self._print_output(seconds)
        return not self._requested

    def stop(self) -> int:
        """Stop all; return the number of signals that came meanwhile."""
        before = self._requested = max(self._requested, 1)
        with self._signals():
            self._run()
        return self._requested - before

    def restart(self) -> None:
        """Stop all and start them again, each with no end counted. Raises KeyboardInterrupt for a signal meanwhile."""
        if self.stop():
            raise KeyboardInterrupt
        self._requested = 0
        self.down.clear()
        self._restarts.clear()
        self._start(self._commands)

    def _run(self) -> None:
        try:
            while self._children or self._due:
                self.step()
                self._stop()
        finally:
            for child in self._children:
                _kill(child)

    def _start(self, commands: Sequence[Command]) -> None:
        prepare = _preparation()
        for command in commands:
            if command.pulse:
                command.pulse.unlink(missing_ok=True)
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

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = [signal.signal(number, self._request_stop) for number in REQUESTS]
        try:
            yield
        finally:
            for number, handler in zip(REQUESTS, before, strict=True):
                signal.signal(number, handler)

    def _request_stop(self, *_: object) -> None:
        self._requested += 1

    def _stop(self) -> None:
        """Send the last stage what was requested, and kill what has not stopped in its time."""
        if not self._requested or not self._children:
            return
        last = max(child.command.stage for child in self._children)
        asked = [child for child in self._children if child.command.stage == last]
        for at, number in enumerate(STOPS[: self._requested]):
            if next_ones := [child for child in asked if child.sent == at]:
                self._say(f"{number.name} to {', '.join(child.command.name for child in next_ones)}")
            for child in next_ones:
                child.sent += 1
                child.asked_at = child.asked_at or time.monotonic()
                if number is signal.SIGKILL:
                    _kill(child)
                else:
                    child.process.send_signal(number)
        for child in asked:
            if time.monotonic() > child.asked_at + child.command.grace_seconds:
                _kill(child)

    def _kill_frozen(self) -> None:
        """Kill what is frozen: a child of a pool is replaced by its parent, a command is started again."""
        leaders = {child.process.pid: child for child in self._children}
        for leader, pid, why in self._freezes.found({pid: each.command.pulse for pid, each in leaders.items()}):
            child = leaders[leader]
            process = "" if pid == leader else f" (process {pid})"
            self._say(f"{child.command.name}{process} {why}; it is killed")
            if pid == leader:
                _kill(child)
            else:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Forget the children that have ended, and plan the next start of those that were not asked to."""
        for child in [each for each in self._children if each.process.poll() is not None]:
            _kill(child)  # What it started and left.
            self._drain(child)
            self._children.remove(child)
            if not self._requested:
                self._plan(child.command, child.process.returncode)

    def _plan(self, command: Command, code: int) -> None:
        ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        wait = self._restarts.setdefault(command.name, Restarts()).wait_seconds(code, time.monotonic())
        if wait is not None:
            self._due[command.name] = (time.monotonic() + wait, command)
            self._say(f"{command.name} {ended}; starting it again")
            return
        self.down[command.name] = 128 - code if code < 0 else code or 1
        others = ", the others go on" if self._children or self._due else ""
        minutes = f"{restarts.WITHIN_SECONDS / 60:.0f} minutes"
        self._say(f"{command.name} {ended} after {restarts.TIMES} restarts in {minutes}; it stays down{others}")

    def _print_output(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            child: Child = key.data
            chunk = os.read(child.output.fileno(), 65536)
            *lines, child.rest = (child.rest + chunk).split(b"\n")
            if not chunk:
                self._selector.unregister(child.output)
                lines = [child.rest] if child.rest else []
            for line in lines:
                text = line.decode(errors="replace").rstrip("\r")
                if not re.search(child.command.quiet, text):
                    self._print(child.command.name, text)

    def _drain(self, child: Child) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while child.output in {key.fileobj for key in self._selector.get_map().values()}:
            if time.monotonic() > deadline:
                self._selector.unregister(child.output)
            self._print_output(POLL_SECONDS)
        child.output.close()

    def _say(self, sentence: str) -> None:
        self._print(self._name, sentence)

    def _print(self, name: str, line: str) -> None:
        if not printed(f"{name:{self._width}} | {line}", self._out):
            self._requested = max(self._requested, 1)


def printed(line: str, out: TextIO) -> bool:
    """Print a line; False if its reader has ended, as `head` and closed terminals do: the next lines go nowhere."""
    try:
        try:
            print(line, file=out, flush=True)
        except BlockingIOError:  # Another program has the same terminal, and has set it so; the line is in the buffer.
            os.set_blocking(out.fileno(), True)
            out.flush()
    except OSError:  # Python would flush it again at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return False
    return True


def _kill(child: Child) -> None:
    with suppress(ProcessLookupError, PermissionError):  # The second is macOS's answer for one that has just ended.
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
