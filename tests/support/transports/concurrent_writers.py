"""Processes that write the same object at the same moment, each with a storage of its own there."""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ami.transports.objectstore.storage.errors import CASConflictError
from tests.support import forked_python
from tests.support.transports.storage_location import StorageLocation

SECONDS = 60


class ConcurrentWriters:
    """So many processes; each does what it is sent, and answers with the version it wrote, None where it lost."""

    def __init__(self, conversations: list[TextIO]) -> None:
        self._conversations = conversations

    def race(self, operation: str, key: str, version: str | None = None) -> dict[str, str]:
        """Let all of them ``create`` or ``replace`` the key; return {content: version} of those who won."""
        contents = [f"{operation} {key} {version} by {number}" for number in range(len(self._conversations))]
        for each, content in zip(self._conversations, contents, strict=True):
            each.write(json.dumps([operation, key, content, *([version] if version else [])]) + "\n")
        for each in self._conversations:
            each.flush()
        answers = [json.loads(each.readline()) for each in self._conversations]
        return {content: answer for content, answer in zip(contents, answers, strict=True) if answer is not None}


@contextmanager
def concurrent_writers(somewhere: StorageLocation, count: int) -> Iterator[ConcurrentWriters]:
    """Start the processes and wait until each has opened the place; end them."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+b") as log:
        address = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(SECONDS)
            server.bind(address)
            server.listen(count)
            argv = ["-m", __name__, address, json.dumps(somewhere)]
            processes = [forked_python.start(argv, env=dict(os.environ), stdout=log, stderr=log) for _ in range(count)]
            conversations = [_conversation(server.accept()[0]) for _ in processes]
        try:
            for each in conversations:
                assert each.readline() == "ready\n", Path(log.name).read_text()
            yield ConcurrentWriters(conversations)
        finally:
            for each in conversations:
                each.close()
            for process in processes:
                process.wait(SECONDS)


def _conversation(connection: socket.socket) -> TextIO:
    """Return the lines that go to and fro; the connection ends with them."""
    with connection:
        connection.settimeout(SECONDS)
        return connection.makefile("rw")


def main(address: str, kind: str, arguments: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw") as conversation:
            storage = StorageLocation(kind, arguments).open()
            print("ready", file=conversation, flush=True)
            for line in conversation:
                operation, key, content, *version = json.loads(line)
                try:
                    answer = getattr(storage, operation)(key, content.encode(), *version)
                except CASConflictError:
                    answer = None
                print(json.dumps(answer), file=conversation, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *json.loads(sys.argv[2]))
