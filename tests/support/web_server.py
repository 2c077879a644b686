"""The web process as deployment starts it, on a port of this machine."""

import resource
import shlex
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import httpx

from tests.support.place import ROOT, Place, Process, until

START_SECONDS = 60
PAGE_KIB = resource.getpagesize() // 1024
START_SCRIPT = ROOT / "compose/start/web"


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def command_line(port: int) -> list[str]:
    """Return the command of ``compose/start/web`` with one worker process on a loopback port.

    That one process is never replaced because of the number of its requests, so that its memory tells what they left.
    """
    (line,) = [each for each in START_SCRIPT.read_text().splitlines() if each.startswith("exec ")]
    words = shlex.split(line.removeprefix("exec "))
    arguments = words[words.index("gunicorn") + 1 :]
    for index, word in enumerate(arguments):
        if word == "--bind":
            arguments[index + 1] = f"127.0.0.1:{port}"
    return [sys.executable, "-m", "gunicorn", *arguments, "--workers", "1", "--max-requests", "0"]


def environment_of_script() -> dict[str, str]:
    """Return what the start script puts into the environment."""
    (line,) = [each for each in START_SCRIPT.read_text().splitlines() if each.startswith("exec env ")]
    pairs = takewhile(lambda word: "=" in word, shlex.split(line)[2:])
    return dict(pair.split("=", 1) for pair in pairs)


@dataclass
class Web:
    """A web server with one worker process; ``url`` has no slash at its end."""

    url: str
    process: Process

    def await_ready(self) -> None:
        """Return when it answers; fail with its output when it stopped."""

        def answers() -> bool:
            if self.process.popen.poll() is not None:
                raise AssertionError(f"The web server stopped:\n{self.process.text[-4000:]}")
            with suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/livez", timeout=5, verify=False).status_code == 200
            return False

        until(answers, START_SECONDS, "the web server answers")

    @property
    def port(self) -> int:
        """The port of this machine that it listens on."""
        return int(self.url.rpartition(":")[2])

    @property
    def memory_mib(self) -> float:
        """The resident memory of its worker processes together."""
        return rss_kib(self.workers) / 1024

    @property
    def workers(self) -> list[int]:
        """The ids of its worker processes."""
        return children(self.process.popen.pid)


def children(pid: int) -> list[int]:
    """Return the ids of a process's children; none where it has ended."""
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def rss_kib(pids: Sequence[int]) -> int:
    """Return the resident memory of processes together, in KiB; what has ended counts nothing."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE_KIB
    return total


def web_of(place: Place, **environment: str) -> Web:
    """Start the web server of a place on a free port and return it when it answers."""
    web = start_web(place, free_port(), **environment)
    web.await_ready()
    return web


def start_web(place: Place, port: int, **environment: str) -> Web:
    """Start the web server of a place; it may not answer yet."""
    changes = {
        **environment_of_script(),
        "ANTENNA_PUBLIC_URL": f"http://127.0.0.1:{port}",
        **environment,
    }
    place.environment.pop("WEB_CONCURRENCY", None)
    return Web(f"http://127.0.0.1:{port}", place.start(command_line(port), **changes))
