"""Runs parts side by side, prints their lines, restarts them when the code changes, and stops them in order."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from demo.local.output import Output
from demo.local.source_changes import SourceChanges
from provision.guard import dies_with_parent

LOOK_SECONDS = 0.5
#: A part is killed when it has not ended this long after SIGTERM.
STOP_SECONDS = 8.0
SHOWN_FILES = 3


class PartFailed(Exception):
    """A part ended before everything was up; the message has its name."""


@dataclass(frozen=True)
class Part:
    """A command with the name before each line of its output; ``prefix`` replaces that, empty for none. Lines that
    ``quiet`` matches are not printed.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: str | None = None
    stop_seconds: float = STOP_SECONDS
    quiet: str = r"^$"


@dataclass
class Running:
    """A part's process, and the thread that prints its lines. ``is_ended``: that it ended has been said."""

    part: Part
    popen: subprocess.Popen[str]
    reader: threading.Thread
    is_ended: bool = False


class Supervisor:
    """The parts, in the order in which they were started; they are stopped the other way round."""

    def __init__(self, environment: Mapping[str, str], output: Output) -> None:
        self._environment, self._output = environment, output
        self._running: list[Running] = []

    def start(self, *parts: Part) -> None:
        """Start parts, and end them with this process, however it ends."""
        for part in parts:
            self._running.append(self._started(part))

    def check(self) -> None:
        """Raise `PartFailed` if one has ended."""
        for running in self._running:
            if (code := running.popen.poll()) is not None:
                running.reader.join(2)
                raise PartFailed(f"{running.part.name} {_ended(code)}; its last lines are above.")

    def watch(self, changes: SourceChanges) -> None:
        """Restart the parts when the code changes, and say when one ends by itself. Never returns."""
        while True:
            time.sleep(LOOK_SECONDS)
            self._say_ended()
            if changed := changes.settled():
                more = f" and {len(changed) - SHOWN_FILES} more" if len(changed) > SHOWN_FILES else ""
                self._output.say(f"changed: {', '.join(changed[:SHOWN_FILES])}{more}; restarting")
                self._restart()

    def stop(self) -> None:
        """Stop all, the last started first; a second Ctrl-C kills what is left."""
        with _uninterrupted() as is_impatient:
            for running in reversed(self._running):
                self._end(running, is_impatient)
            self._running.clear()

    def _restart(self) -> None:
        parts = [running.part for running in self._running]
        with _uninterrupted() as is_impatient:
            for running in reversed(self._running):
                self._end(running, is_impatient)
            self._running.clear()
        if is_impatient:
            raise KeyboardInterrupt
        self.start(*parts)

    def _started(self, part: Part) -> Running:
        popen = subprocess.Popen(  # noqa: S603 - argv is ours
            list(part.argv),
            env={**self._environment, **part.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )
        reader = threading.Thread(target=self._print, args=(part, popen), daemon=True)
        reader.start()
        return Running(part, popen, reader)

    def _print(self, part: Part, popen: subprocess.Popen[str]) -> None:
        prefix = part.name if part.prefix is None else part.prefix
        for line in popen.stdout or ():
            if not re.search(part.quiet, line := line.rstrip()):
                self._output.part(prefix, line)

    def _say_ended(self) -> None:
        for running in self._running:
            code = running.popen.poll()
            if code is not None and not running.is_ended:
                running.is_ended = True
                running.reader.join(2)
                self._output.fault(
                    f"{running.part.name} {_ended(code)}; its last lines are above. It starts again when a .py file "
                    "changes."
                )

    def _end(self, running: Running, is_impatient: list[int]) -> None:
        popen = running.popen
        with contextlib.suppress(ProcessLookupError):
            popen.terminate()
        deadline = time.monotonic() + running.part.stop_seconds
        while popen.poll() is None and time.monotonic() < deadline and not is_impatient:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)  # What it left, or itself.
        popen.wait()
        running.reader.join(2)
        if popen.stdout and not running.reader.is_alive():
            popen.stdout.close()


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


@contextlib.contextmanager
def _uninterrupted() -> Iterator[list[int]]:
    """Yield a list that holds the signals that came meanwhile: stopping goes on."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
