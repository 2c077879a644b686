"""Starts Celery processes by ``tests.support.warm_start`` and gives them the face of a ``subprocess.Popen``."""

import atexit
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ami.topology import command
from tests.support.forked_process import ForkedProcess
from tests.support.warm_start import RECORD_BYTES

ROOT = Path(__file__).resolve().parents[2]

#: A fork answers at once; before its first, the server imports its packages and sets up Django.
START_SECONDS = 120


#: Threads may start processes side by side.
STARTING = threading.Lock()

#: How many environments stay open for the tests to come: each has about 30 MiB of its own.
KEPT = 8

#: The open environments by their variables, the one last used at the end: the server ends after them.
OPEN: "dict[frozenset[tuple[str, str]], Environment]" = {}


class WarmProcess(ForkedProcess):
    """A Celery process, whose exit code comes down a pipe."""

    def __init__(self, argv: Sequence[str], pid: int, pipe: int) -> None:
        super().__init__(argv, pid)
        self._pipe = pipe

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and _readable(self._pipe, seconds):
            # Without an answer the server is gone, and has killed what it had started.
            self.returncode = int(os.read(self._pipe, RECORD_BYTES) or -signal.SIGKILL)
            os.close(self._pipe)
        return self.returncode


class Environment:
    """A process that has set up Django for one environment, and forks Celery's processes from there."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        output, log = tempfile.mkstemp(prefix="antenna-environment-")
        self._log = Path(log)
        self._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            request = {"do": "serve", "environment": command.environment(environment)}
            socket.send_fds(_server(), [json.dumps(request).encode()], [output, its.fileno()])
        os.close(output)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone: it sends nothing, so there is but the end to read."""
        return _readable(self._control.fileno(), 0)

    def start(self, argv: Sequence[str], log: Path) -> WarmProcess:
        """Start ``celery ARGV``, its output in a file."""
        mine, its = os.pipe()
        try:
            with log.open("wb") as output, suppress(BrokenPipeError, ConnectionResetError):
                request = {"do": "run", "argv": list(argv)}
                socket.send_fds(self._control, [json.dumps(request).encode()], [output.fileno(), its])
        finally:
            os.close(its)
        if not _readable(mine, START_SECONDS) or not (pid := os.read(mine, RECORD_BYTES)):
            os.close(mine)
            raise AssertionError(f"No process in this environment:\n{self._log.read_text(errors='replace')}")
        return WarmProcess(["celery", *argv], int(pid), mine)

    def close(self) -> None:
        """Kill what was started here and still runs."""
        self._control.close()
        self._log.unlink(missing_ok=True)


def environment_of(variables: Mapping[str, str]) -> Environment:
    """Return the environment with these variables, of an earlier test where one had the same."""
    key = frozenset(variables.items())
    with STARTING:
        environment = OPEN.pop(key, None)
        if environment is not None and environment.has_ended:
            environment.close()
            environment = None
        OPEN[key] = environment or Environment(variables)
        return OPEN[key]


def close_oldest() -> None:
    """Close all environments but those that were used last; no process may run there."""
    with STARTING:
        for key in list(OPEN)[:-KEPT]:
            OPEN.pop(key).close()


def _readable(pipe: int, timeout: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(timeout))


@functools.cache
def _server() -> socket.socket:
    """The control socket of this process's one server, which ends with this process."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with its:
        popen = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm_start", str(its.fileno())],
            cwd=ROOT,
            env=command.environment({**environment, "PYTHONUNBUFFERED": "1"}),
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )

    @atexit.register
    def end() -> None:
        for environment in OPEN.values():
            environment.close()
        mine.close()
        popen.wait()

    return mine
