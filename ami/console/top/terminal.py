"""A terminal whose keys are read one by one; it is as before at the end, also after a signal."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ami.console.top.keys import CLOSED, KeyDecoder

#: The rest of a sequence that has begun comes within this time; otherwise it was the key Escape.
REST_SECONDS = 0.05
READ_BYTES = 1024


def is_usable(stdin: Any, stdout: Any) -> bool:
    """Whether both are terminals, and the terminal can move its cursor."""
    is_terminal = bool(stdin and stdin.isatty() and stdout.isatty())
    return is_terminal and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


class Keyboard:
    """The keys of standard input, and a way for other threads to wake a waiting reader."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        self._decoder = KeyDecoder()
        self.is_interrupted = False

    def interrupt(self, *_: Any) -> None:
        """Note Ctrl-C; also as the handler of its signal. Its second one raises KeyboardInterrupt.

        The exception alone may be raised inside a finalizer, which drops it.
        """
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True
        self.wake()

    def wake(self, *_: Any) -> None:
        """Let `wait` return; also as the handler of a signal."""
        with suppress(BlockingIOError, OSError):  # Full: it wakes all the same.
            os.write(self._waker, b".")

    def wait(self, seconds: float) -> list[str]:
        """Return the keys that were typed, after so many seconds at the latest."""
        if self._decoder.is_waiting:
            seconds = REST_SECONDS
        ready, _, _ = select.select([self._input, self._woken], [], [], seconds)
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, READ_BYTES)
        if self._input not in ready:
            return self._decoder.keys(b"", is_whole=not ready) if self._decoder.is_waiting else []
        try:
            data = os.read(self._input, READ_BYTES)
        except OSError:
            data = b""
        return self._decoder.keys(data) if data else [CLOSED]

    def close(self) -> None:
        os.close(self._woken)
        os.close(self._waker)


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys one by one and unechoed; a change of the terminal's size wakes, SIGTERM ends the process in order."""
    found, input_number = Keyboard(), sys.stdin.fileno()
    before = termios.tcgetattr(input_number)
    handlers = {
        signal.SIGWINCH: found.wake,
        signal.SIGINT: found.interrupt,
        signal.SIGTERM: _end,
        signal.SIGHUP: _end,
    }
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        tty.setcbreak(input_number)
        changed = termios.tcgetattr(input_number)
        changed[6][termios.VSUSP] = b"\0"  # Ctrl-Z would leave the shell with this screen.
        termios.tcsetattr(input_number, termios.TCSANOW, changed)
        yield found
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        with suppress(termios.error):
            termios.tcsetattr(input_number, termios.TCSADRAIN, before)
        found.close()


def _end(number: int, _: Any) -> None:
    raise SystemExit(128 + number)
