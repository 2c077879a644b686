"""A worker in a process namespace of its own, as on another host: its pids count for nobody else."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

#: What a command is started with; the namespace ends with it.
ELSEWHERE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def skip_without() -> None:
    """Skip the test where no namespace can be made."""
    try:
        subprocess.run([*ELSEWHERE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"NO PROCESS NAMESPACE HERE (needs root, unshare): {error}")


def descendants(pid: int) -> list[int]:
    """Return what a process has started, and they in turn, as pids of this namespace, parents first."""
    return list(_descendants(pid))


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def _descendants(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except FileNotFoundError:  # It has ended meanwhile.
        return
    for text in children.split():
        yield int(text)
        yield from _descendants(int(text))
