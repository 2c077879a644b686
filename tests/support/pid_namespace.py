"""A worker in a process namespace of its own, as on another host: its pids count for nobody else."""

import os
import signal
import subprocess

import pytest

#: What a command is started with; the namespace ends with it.
ELSEWHERE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def skip_without() -> None:
    """Skip the test where no namespace can be made."""
    try:
        subprocess.run([*ELSEWHERE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"NO PROCESS NAMESPACE HERE (needs root, unshare): {error}")


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)
