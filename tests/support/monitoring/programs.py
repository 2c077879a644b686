"""promtool, and a Prometheus of a test's own: its data in a folder, on a free port of this machine."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from provision import monitoring
from provision.kind import NothingFound
from tests.support.locks import locked
from tests.support.place import until
from tests.support.web_server import free_port

START_SECONDS, END_SECONDS = 60, 10


def programs() -> tuple[Path, Path]:
    """Return the server and promtool, installed if needed. Without them a test is skipped, loudly; in CI it fails."""
    with locked(Path(os.environ.get("TMPDIR", "/tmp")) / "antenna-prometheus.lock"):
        try:
            return monitoring.obtain(os.environ)
        except NothingFound as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"NO PROMETHEUS HERE: {error}")


def promtool(*arguments: str | Path) -> str:
    """Run promtool and return what it printed; fail with that if it failed."""
    done = subprocess.run(
        [programs()[1], *arguments], capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Prometheus:
    """A running server; ``url`` has no slash at its end."""

    url: str
    log: Path

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API."""
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=query, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def value(self, expr: str) -> float | None:
        """Return the only value of a query; None where there is none."""
        found = self.get("query", query=expr)["result"]
        return float(found[0]["value"][1]) if found else None


@contextmanager
def running(config: Path, folder: Path) -> Iterator[Prometheus]:
    """Start a server with this configuration, its data and log in ``folder``; end it, by its id, after the block."""
    url, log = f"http://127.0.0.1:{free_port()}", folder / "prometheus.log"
    listen = f"--web.listen-address={url.removeprefix('http://')}"
    argv = [str(programs()[0]), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", listen]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        until(lambda: _is_ready(url, process, log), START_SECONDS, "Prometheus is ready")
        yield Prometheus(url, log)
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/-/ready", timeout=5).status_code == 200
    return False
