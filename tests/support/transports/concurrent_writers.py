"""Processes that write the same object at the same moment, each with a storage of its own there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ami.transports.objectstore.errors import CASConflictError
from tests.support.place import ROOT
from tests.support.transports.storage_location import StorageLocation


class ConcurrentWriters:
    """So many processes; each does what it is told, and answers with the version it wrote, None where it lost."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def race(self, operation: str, key: str, version: str | None = None) -> dict[str, str]:
        """Let all of them ``create`` or ``replace`` the key; return {content: version} of those who won."""
        contents = [f"{operation} {key} {version} by {number}" for number in range(len(self._processes))]
        for process, content in zip(self._processes, contents, strict=True):
            process.stdin.write(json.dumps([operation, key, content, *([version] if version else [])]) + "\n")
        for process in self._processes:
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for process in self._processes]
        return {content: answer for content, answer in zip(contents, answers, strict=True) if answer is not None}


@contextmanager
def concurrent_writers(somewhere: StorageLocation, count: int) -> Iterator[ConcurrentWriters]:
    """Start the processes and wait until each has opened the place; end them."""
    command = [sys.executable, "-m", __name__, json.dumps(somewhere)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        yield ConcurrentWriters(processes)
    finally:
        for process in processes:
            process.stdin.close()
            process.wait(60)
            process.stdout.close()


def main(kind: str, arguments: dict[str, Any]) -> None:
    storage = StorageLocation(kind, arguments).open()
    print("ready", flush=True)
    for line in sys.stdin:
        operation, key, content, *version = json.loads(line)
        try:
            answer = getattr(storage, operation)(key, content.encode(), *version)
        except CASConflictError:
            answer = None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
