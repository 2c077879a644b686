"""Real processes for the governor's unit tests: forked, so that they cost a few milliseconds."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any


@dataclass
class Forked:
    """A child process and what it sends."""

    process: BaseProcess
    pipe: Connection

    def recv(self, seconds: float = 30) -> Any:
        """Return the next object that the child sends; fail when none comes."""
        assert self.pipe.poll(seconds), "the child sent nothing"
        return self.pipe.recv()


@contextmanager
def forked(function: Callable[[Connection], Any]) -> Iterator[Forked]:
    """Run ``function`` in a child with its end of a pipe, which ends with the block."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe()

    def run() -> None:
        mine.close()
        function(its)

    process = context.Process(target=run)
    process.start()
    its.close()
    try:
        yield Forked(process, mine)
    finally:
        mine.close()
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()
