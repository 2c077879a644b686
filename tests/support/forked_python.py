"""Command lines of Python, each in a child of one process that has imported the libraries already.

``python manage.py check`` spends most of its time on importing Django and Celery. `run` and `start` leave that to one
process: it imports libraries, none of our own code and no settings, and forks a child for each command line. The child
has the environment, arguments, folder, output, process group and exit code that it would have as a process of its own.
What the child imports of our code it imports anew.

What only a real start shows stays with `subprocess`: which signals an interpreter ignores, what variables such as
``PYTHONUNBUFFERED`` do, warnings while a library is imported, and that the command line itself works.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.forked_process import LIBRARIES, ForkedProcess

ROOT = Path(__file__).resolve().parents[2]

#: What takes long to import and needs no settings, for every command line of the project.
PRELOADED = (
    *LIBRARIES,
    "boto3.session",
    "django.contrib.staticfiles.storage",
    "django.core.handlers.wsgi",
    "django.core.management.commands.check",
    "django.core.management.commands.createcachetable",
    "django.core.management.commands.migrate",
    "django.db.backends.sqlite3.base",
    "django.forms",
    "django.template.engine",
    "django.test.client",
    "flower.command",
    "gunicorn.app.wsgiapp",
    "gunicorn.workers.gthread",
    "kombu.transport.virtual",
    "numpy",
    "psycopg",
    "pydantic",
    "redis",
    "scipy.ndimage",
    "uritemplate",
    "whitenoise.middleware",
    "yaml",
)
MESSAGE_BYTES = 512 * 1024


class Forked(ForkedProcess):
    """A child, which its parent reports on by numbers: its id, then its wait status."""

    def __init__(self, argv: Sequence[str], answers: socket.socket) -> None:
        super().__init__(argv, 0)
        self._answers = answers
        self.pid = self._answer(None) or 0

    def _answer(self, seconds: float | None) -> int | None:
        """Return the next number from the child or its parent, none when it does not come in time."""
        if not select.select([self._answers], [], [], seconds)[0]:
            return None
        if not (answer := self._answers.recv(100)):
            raise RuntimeError(f"The process that forks is gone; it was to run {self.args}")
        return int(answer)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and (status := self._answer(seconds)) is not None:
            self.returncode = os.waitstatus_to_exitcode(status)
            self._answers.close()
        return self.returncode


def start(argv: Sequence[str], *, cwd: Path = ROOT, env: dict[str, str], stdout: Any, stderr: Any) -> Forked:
    """Start ``python ARGV`` in a process group of its own."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        request = json.dumps({"argv": list(argv), "cwd": str(cwd), "env": env}).encode()
        socket.send_fds(_parent(), [request], [stdout.fileno(), stderr.fileno(), theirs.fileno()])
    return Forked(argv, ours)


def run(
    argv: Sequence[str], *, cwd: Path = ROOT, env: dict[str, str], seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGV`` and return what it printed and its exit code."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = start(argv, cwd=cwd, env=env, stdout=stdout, stderr=stderr)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess(list(argv), code, *texts)


@functools.cache
def _parent() -> socket.socket:
    """Start the process that forks; it ends when its end of the socket is closed, and with it what still runs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            # NumPy's libraries would start threads, which no child has.
            env={**inherited, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- The process that forks -------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> dict[str, Any]:
    """Fork a child for each request and report how it ended. Return in the child alone, with its request."""
    events = selectors.DefaultSelector()
    events.register(requests, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in events.select():
            if key.fileobj is not requests:
                pid, answers = running.pop(key.fd)
                events.unregister(key.fd)
                os.close(key.fd)
                with answers, suppress(OSError):  # Who asked may be gone.
                    answers.send(str(os.waitpid(pid, 0)[1]).encode())
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 3)
            if not message:
                for pid, _ in running.values():
                    with suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                os._exit(0)
            answers = socket.socket(fileno=descriptors[2])
            if (pid := os.fork()) == 0:
                become(json.loads(message), descriptors, answers)
                for one in (answers, requests, events, *(held for _, held in running.values())):
                    one.close()
                for descriptor in running:
                    os.close(descriptor)
                return dict(json.loads(message))
            for descriptor in descriptors[:2]:
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            running[watched] = (pid, answers)
            events.register(watched, selectors.EVENT_READ)


def become(request: dict[str, Any], descriptors: Sequence[int], answers: socket.socket) -> None:
    """Take over the session, output, folder and environment of the request."""
    os.setsid()
    for descriptor, number in zip(descriptors, (1, 2), strict=False):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    answers.send(str(os.getpid()).encode())


def interpret(argv: list[str]) -> None:
    """Do what ``python ARGV`` does: ``-W`` with an action, then ``-c``, ``-m`` or a script."""
    while argv[0] == "-W":
        sys.warnoptions.append(argv[1])
        warnings.simplefilter(argv[1])  # type: ignore[arg-type]
        argv = argv[2:]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if argv[0] == "-m":
        sys.argv, sys.path[0] = argv[1:], str(Path.cwd())
        runpy._run_module_as_main(argv[1])  # type: ignore[attr-defined]
        return
    if argv[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *argv[2:]], ""
        code = compile(argv[1], "<string>", "exec")
    else:
        sys.argv, sys.path[0] = argv, str(Path(argv[0]).resolve().parent)
        main.__file__ = argv[0]
        code = compile(Path(argv[0]).read_bytes(), argv[0], "exec")
    exec(code, main.__dict__)


def end(argv: list[str]) -> None:
    """Do what an interpreter does around its command line, but for freeing each object, which takes half a second."""
    code = 0
    try:
        interpret(argv)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if ended.code is not None and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)


def prepare() -> None:
    """Import the libraries."""
    for name in PRELOADED:
        importlib.import_module(name)
    ours = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    if found := [name for name in sys.modules if name.split(".")[0] in ours - {"tests"}]:
        raise RuntimeError(f"A library imports our own code: {', '.join(found)}")
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("A library starts a thread, which no child would have")
    gc.collect()
    gc.freeze()  # So that no child copies what a collection looks at.


if __name__ == "__main__":
    _requests = socket.socket(fileno=int(sys.argv[1]))
    _requests.set_inheritable(False)
    prepare()
    end(serve(_requests)["argv"])
