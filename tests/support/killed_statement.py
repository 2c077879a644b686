"""Ends work in place of one of its statements: by SIGKILL in a process of its own, on SQLite by an exception."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connection, connections

FORK = multiprocessing.get_context("fork")


class Killed(BaseException):
    """Ends work as a kill does: nothing handles it, and the transaction is rolled back."""


class Dies:
    """Ends its process in place of a statement, or with an exception where several processes share no database."""

    def __init__(self, statement: int, *, by_signal: bool) -> None:
        self.left, self.by_signal = statement, by_signal

    def __call__(self, execute: Any, *args: Any) -> Any:
        if self.left == 0 and self.by_signal:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.left == 0:
            raise Killed
        self.left -= 1
        return execute(*args)


def killed_at(statement: int, work: Callable[[], Any]) -> bool:
    """Do some work until this statement; return whether it came that far."""
    if connection.vendor == "sqlite":
        try:
            with connection.execute_wrapper(Dies(statement, by_signal=False)):
                work()
        except Killed:
            return True
        return False
    connections.close_all()
    child = FORK.Process(target=partial(_work, statement, work))
    child.start()
    child.join(timeout=60)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def _work(statement: int, work: Callable[[], Any]) -> None:
    with connection.execute_wrapper(Dies(statement, by_signal=True)):
        work()
    os._exit(0)
