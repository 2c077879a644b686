"""Celery processes that start quickly: forked from one that has imported what each of them imports first.

Run as a program it imports the packages below and then serves its control socket. A request there forks it: into a
copy that sets up Django for an environment, with a control socket of its own, or, in such a copy, into
``python -m celery ARGV``. All code of this repository is imported under the environment of its place, as ever; what is
spared is to import Django, Celery and the rest of the packages again for each process. It knows no settings before.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.support.forked_process import LIBRARIES

#: What a worker imports and needs no settings.
PACKAGES = (
    *LIBRARIES,
    "django.contrib.staticfiles.finders",
    "django.core.cache.backends.redis",
    "django.core.mail",
    "django.core.management",
    "django.template.loader",
    "django.views.generic",
    "prometheus_client",
    "psutil",
    "redis.asyncio",
    "requests",
)

LONGEST_REQUEST = 2**17
FILES_OF_A_REQUEST = 2

#: The pipe of a process carries two numbers, its id and its exit code, each so many bytes.
RECORD_BYTES = 12


def as_record(number: int) -> bytes:
    """A number as the pipe of a process carries it."""
    return f"{number:{RECORD_BYTES}d}".encode()


class Server:
    """Forks on request, and tells the exit code of what it forked down the pipe that came with the request."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: dict[int, tuple[int, int]] = {}

    def serve(self) -> Callable[[], None]:
        """Serve until the other end is closed, which ends all that runs here; return only in a child: what it is for.

        The child has let go of everything of its parent's.
        """
        while True:
            for key, _ in self._selector.select():
                if key.fd != self._control.fileno():
                    self._reap(key.fd)
                    continue
                message, files, _, _ = socket.recv_fds(self._control, LONGEST_REQUEST, FILES_OF_A_REQUEST)
                if not message:
                    self._end()
                request = json.loads(message)
                pid = os.fork()
                if not pid:
                    self._let_go()
                    return _job(request, files)
                self._watch(pid, request, files)

    def _watch(self, pid: int, request: dict[str, Any], files: Sequence[int]) -> None:
        pidfd = os.pidfd_open(pid)
        first, second = files
        os.close(first)
        if request["do"] == "serve":  # The control socket is the child's alone.
            os.close(second)
            second = -1
        self._children[pidfd] = pid, second
        self._selector.register(pidfd, selectors.EVENT_READ)

    def _reap(self, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        pid, pipe = self._children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        if pipe != -1:
            with suppress(BrokenPipeError):
                os.write(pipe, as_record(os.waitstatus_to_exitcode(status)))
            os.close(pipe)

    def _let_go(self) -> None:
        for pidfd, (_, pipe) in self._children.items():
            os.close(pidfd)
            if pipe != -1:
                os.close(pipe)
        self._selector.close()
        self._control.close()

    def _end(self) -> None:
        for pid, pipe in self._children.values():
            if pipe != -1:
                os.kill(pid, signal.SIGKILL)  # It may have no group of its own yet.
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # A copy ends by itself: its control socket is closed as well.
        os._exit(0)


def _job(request: dict[str, Any], files: Sequence[int]) -> Callable[[], None]:
    log, other = files
    if request["do"] == "serve":
        return lambda: _copy(request["environment"], log, socket.socket(fileno=other))
    return lambda: _celery(request["argv"], log, other)


def _copy(environment: dict[str, str], log: int, control: socket.socket) -> None:
    """Set Django up as a process of this environment would, and fork from there."""
    _print_to(log)
    os.environ.clear()
    os.environ.update(environment)
    import django

    django.setup()
    from config import celery_app

    celery_app.loader.import_default_modules()  # The tasks, which each worker would import for itself.
    gc.freeze()  # The children share what no collection touches.
    Server(control).serve()()


def _celery(argv: list[str], log: int, pipe: int) -> None:
    """Become ``python -m celery ARGV`` in a process group of its own."""
    os.setsid()
    _print_to(log)
    os.write(pipe, as_record(os.getpid()))
    os.close(pipe)
    sys.argv = ["celery", *argv]
    runpy.run_module("celery", run_name="__main__", alter_sys=True)


def _print_to(log: int) -> None:
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if __name__ == "__main__":
    for package in PACKAGES:
        importlib.import_module(package)
    gc.freeze()
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()()
