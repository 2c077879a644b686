"""Whether a container engine answers here, and the few commands that tests ask of it."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import docker as library

from tests.support.place import until as at_once

#: Set where an engine was brought up for the tests: without it they fail instead of being left out.
REQUIRED = "ANTENNA_ENGINE_REQUIRED"


def missing() -> str:
    """Return why no container can be started here; nothing when one can."""
    if shutil.which("docker") is None:
        return "there is no `docker` command"
    for argv in (["docker", "version", "--format", "{{.Server.Version}}"], ["docker", "compose", "version", "--short"]):
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return f"`{' '.join(argv)}` does not answer"
        if done.returncode:
            return f"`{' '.join(argv)}` says: {done.stderr.strip()[:200]}"
    return ""


def is_required() -> bool:
    return bool(os.environ.get(REQUIRED))


def docker(*argv: str, timeout: float = 120, check: bool = True) -> str:
    """Run ``docker`` and return what it printed; fail with what it said."""
    return run(["docker", *argv], timeout=timeout, check=check)


def run(argv: Sequence[str], timeout: float = 120, check: bool = True, **options: Any) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, **options)
    if check and done.returncode:
        raise AssertionError(
            f"`{' '.join(argv)}` ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


@cache
def client() -> library.DockerClient:
    """The engine's own API: it answers within milliseconds, where each start of ``docker`` costs much more."""
    return library.from_env(timeout=600)


def inspect(container: str) -> dict[str, Any]:
    """Return what the engine knows of a container."""
    return dict(client().api.inspect_container(container))


def execute(container: str, *argv: str, check: bool = True, **environment: str) -> str:
    """Run a command inside a container and return what it printed; fail with what it said."""
    code, (said, complaint) = (
        client().containers.get(container).exec_run(list(argv), demux=True, environment=environment)
    )
    out, error = ((part or b"").decode(errors="replace") for part in (said, complaint))
    if check and code:
        raise AssertionError(f"`{' '.join(argv)}` in {container[:12]} ended with {code}:\n{out[-4000:]}{error[-4000:]}")
    return out


def until(condition: Callable[[], Any], seconds: float = 30, what: str = "", every: float = 0.25) -> Any:
    """Return the first true answer of ``condition``, asked a few times a second: what containers do takes longer.

    ``every`` is the seconds between two questions.
    """

    def asked() -> Any:
        answer = condition()
        if not answer:
            time.sleep(every)
        return answer

    return at_once(asked, seconds, what)
