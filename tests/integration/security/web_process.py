"""One real web process as compose starts it, and what it keeps of the machine's memory."""

import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.places import ROOT, Place, Process, until

SCRIPT = (ROOT / "compose/start/web").read_text().splitlines()
EXPORTED = dict(line.removeprefix("export ").split("=") for line in SCRIPT if line.startswith("export "))

#: What a test of one process leaves out: how many there are, where they listen, and when one is replaced.
REPLACED = ("--bind", "--max-requests", "--max-requests-jitter")


def command(port: int) -> list[str]:
    """The command of compose/start/web with one worker that is never replaced, on a port of the test's own."""
    words = shlex.split(SCRIPT[-1])
    kept = words[words.index("gunicorn") :]
    for name in REPLACED:
        if name in kept:
            del kept[kept.index(name) : kept.index(name) + 2]
    return [sys.executable, "-m", *kept, "--bind", f"127.0.0.1:{port}", "--workers", "1"]


class Web:
    """The process, an address to send to, and its memory."""

    def __init__(self, process: Process, port: int) -> None:
        self.process, self.port, self.url = process, port, f"http://127.0.0.1:{port}"

    @property
    def worker(self) -> int:
        """The pid of the one worker below gunicorn's master."""
        (pid,) = Path(f"/proc/{self.process.popen.pid}/task/{self.process.popen.pid}/children").read_text().split()
        return int(pid)

    @property
    def memory_mib(self) -> float:
        """The resident memory of the worker."""
        lines = Path(f"/proc/{self.worker}/status").read_text().splitlines()
        (kib,) = [line.split()[1] for line in lines if line.startswith("VmRSS")]
        return int(kib) / 1024

    def answers(self) -> bool:
        """Whether it takes requests."""
        assert self.process.popen.poll() is None, self.process.text
        try:
            return httpx.get(f"{self.url}/livez").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def started(place: Place, **environment: str) -> Iterator[Web]:
    """Start it on the place's database and wait until it answers."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    web = Web(place.start(command(port), **EXPORTED, **environment), port)
    until(web.answers, 60, "web answers")
    yield web
