"""Sends requests to buckets through a subprocess, for a forked process that cannot send them itself.

The client library's threads are not copied by a fork; see `bucket.can_ask`.
"""

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from ami.transports.objectstore.storage.bucket import Bucket, Place
from ami.transports.objectstore.storage.errors import JQueueError, StorageError
from ami.transports.objectstore.storage.port import Stored

#: How long the subprocess may take to start, above the time of its requests.
START_SECONDS = 30.0
END_SECONDS = 5.0

SERVE = "import sys; from ami.transports.objectstore.storage.fork_safe import serve; serve(int(sys.argv[1]))"


class SubprocessStorage:
    """A `Storage` in the bucket of a place, used through a subprocess that is started when it is needed.

    All places of this process share the subprocess. It ends with this process, however this one ends.
    """

    is_remote = True

    def __init__(self, place: Place) -> None:
        self._place = place

    def read(self, key: str) -> Stored | None:
        stored: Stored | None = self._ask("read", key)
        return stored

    def create(self, key: str, content: bytes) -> str:
        return str(self._ask("create", key, bytes(content)))

    def replace(self, key: str, content: bytes, version: str) -> str:
        return str(self._ask("replace", key, bytes(content), version))

    def delete(self, key: str) -> None:
        self._ask("delete", key)

    def list(self, prefix: str) -> list[str]:
        keys: list[str] = self._ask("list", prefix)
        return keys

    def _ask(self, operation: str, *arguments: Any) -> Any:
        # A read is tried again until its timeout is over, and the last try has a whole one.
        seconds = START_SECONDS + 2 * self._place.timeout_seconds
        try:
            value, failure = _running().ask((self._place, operation, arguments), seconds)
        except (OSError, EOFError) as error:
            raise StorageError(f"cannot {operation} '{arguments[0]}' in {self._place}: {error!r}", error) from error
        if failure is not None:
            raise failure
        return value


class _Process:
    """The subprocess, and the idle connections to it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(  # noqa: S603 - this very interpreter
                [sys.executable, "-c", SERVE, str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._idle: list[Connection] = []

    def ask(self, request: tuple[Place, str, tuple[Any, ...]], seconds: float) -> tuple[Any, Exception | None]:
        """Return (value, failure). Raises OSError or EOFError where the subprocess does not answer."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            connection.send(request)
            if not connection.poll(seconds):
                raise TimeoutError(f"no answer within {seconds:g} s")
            answer: tuple[Any, Exception | None] = connection.recv()
        except BaseException:
            # A task's time limit can interrupt it anywhere; a later request must not receive this answer.
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def has_ended(self) -> bool:
        """Return whether it has ended, and reap it."""
        return self._popen.poll() is not None

    def end(self) -> None:
        """Let it end, and reap it."""
        self.leave()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(END_SECONDS)

    def leave(self) -> None:
        """Close this side of everything."""
        self._control.close()
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _connect(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        return Connection(ours.detach())


_process: _Process | None = None
_starting = threading.Lock()


def _running() -> _Process:
    global _process
    with _starting:
        if _process is not None and _process.has_ended():
            _process.end()
            _process = None
        if _process is None:
            _process = _Process()
        return _process


def _after_fork() -> None:
    """In a forked child: drop the parent's subprocess, which would outlive it else; its own starts when needed."""
    global _process, _starting
    _starting = threading.Lock()
    if _process is not None:
        _process.leave()
        _process = None


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _end() -> None:
    if _process is not None:
        _process.end()


def serve(control_fd: int) -> None:
    """Answer requests on the connections that come through ``control_fd`` until its other end is closed."""
    # A signal to all processes of a terminal or a service is meant for the owner, which sends requests while it ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=control_fd) as control:
        while True:
            message, fds, _, _ = socket.recv_fds(control, 1, 1)
            if not message:
                os._exit(0)
            threading.Thread(target=_serve, args=(Connection(fds[0]),), daemon=True).start()


def _serve(connection: Connection) -> None:
    with connection, suppress(EOFError, OSError):
        while True:
            connection.send(_answer(*connection.recv()))


def _answer(place: Place, operation: str, arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        return getattr(Bucket(place), operation)(*arguments), None
    except (JQueueError, ValueError) as failure:
        return None, failure
    except Exception as error:
        return None, StorageError(f"cannot {operation} '{arguments[0]}' in {place}: {type(error).__name__}")
