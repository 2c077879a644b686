"""Other processes of a test, each a few lines of Python."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.place import ROOT

SECONDS = 120


@contextmanager
def started(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start Python on lines that find the arguments in ``sys.argv``; kill it in the end."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(code: str, *arguments: object) -> tuple[int, str]:
    """Run such a process to its end; return its exit status and what it printed."""
    with started(code, *arguments) as process:
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output
