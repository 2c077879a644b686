"""A program in a pseudo-terminal, and what its screen shows."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyte

from tests.support.place import ROOT, until

SIZE = (80, 24)


class Terminal:
    """A process whose terminal is emulated: `press` types, `text` is its screen."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], size: tuple[int, int] = SIZE) -> None:
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._own, self._theirs = pty.openpty()
        self._set_size(*size)
        self.before = termios.tcgetattr(self._theirs)
        self.sent = b""
        self.popen = subprocess.Popen(
            list(argv),
            cwd=ROOT,
            env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        with self._lock:
            return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def modes(self) -> list[object]:
        """The settings of the terminal: whether it echoes, and the like."""
        return termios.tcgetattr(self._theirs)

    def press(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def shows(self, *texts: str, seconds: float = 30) -> None:
        """Wait until the screen has all of these texts."""
        try:
            until(lambda: all(each in self.text for each in texts), seconds)
        except AssertionError:
            raise AssertionError(f"Not on the screen within {seconds} s: {texts}\n{self.text}") from None

    def resize(self, columns: int, lines: int) -> None:
        """Change the size as a terminal does: the emulator and what the program is told, with no frame in between."""
        with self._lock:
            self._screen.resize(lines, columns)
            self._set_size(columns, lines)
        os.killpg(self.popen.pid, signal.SIGWINCH)

    def close(self) -> None:
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        os.close(self._theirs)
        self._reader.join(5)
        os.close(self._own)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._own, 65536):
                with self._lock:
                    self.sent += data
                    self._stream.feed(data)


@contextmanager
def terminal(argv: Sequence[str], environment: Mapping[str, str], size: tuple[int, int] = SIZE) -> Iterator[Terminal]:
    """Run a program in a terminal of its own, and end it."""
    found = Terminal(argv, environment, size)
    try:
        yield found
    finally:
        found.close()
