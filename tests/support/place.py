"""A place to test in: a broker of its own, the environment of the processes there, and those processes."""

import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ami.celery.declaration import depth
from ami.topology import command
from ami.topology.topology import load
from ami.transports.objectstore.broker import broker_storage
from tests.support.brokers import BROKERS as BROKERS
from tests.support.brokers import FOLDER as FOLDER
from tests.support.brokers import ON_FOLDER as ON_FOLDER
from tests.support.brokers import RABBITMQ, celery_at, new_broker, set_broker
from tests.support.brokers import management as management
from tests.support.warm_process import WarmProcess, close_oldest, environment_of

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "ANTENNA_INGEST_CONCURRENCY": "2",
    "ANTENNA_HOUSEKEEPING_CONCURRENCY": "1",
    "ANTENNA_INTERACTIVE_CONCURRENCY": "2",
    "ANTENNA_FALLBACK_CONCURRENCY": "1",
}


def until(
    condition: Callable[[], Any], seconds: float = 60, what: str | Callable[[], str] = "", every: float = 0.05
) -> Any:
    """Return the first true answer of ``condition``, asked again after ``every`` seconds.

    Fail when none came before the deadline, saying ``what``.
    """
    deadline = time.monotonic() + seconds
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"Not within {seconds} s: {said or condition}")
        time.sleep(every)


@dataclass
class Process:
    """One process of a place, its output in a file."""

    argv: Sequence[str]
    popen: subprocess.Popen[bytes] | WarmProcess
    log: Path

    @property
    def text(self) -> str:
        """All it has printed so far."""
        return self.log.read_text(errors="replace")

    def stop(self, seconds: float = 30) -> int:
        """Ask it to stop, and kill its group when it does not; return its exit code."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.popen.wait()

    def kill(self) -> None:
        """SIGKILL the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


@dataclass(frozen=True)
class Running:
    """A process that a place started: its exit code is None while it runs."""

    pid: int
    command: str
    exit_code: int | None
    log: Path


#: This process in the names of its places.
PROCESS = uuid.uuid4().hex[:6]

#: The places now open, oldest first: what a failing test names.
OPEN: list["Place"] = []


def open_places() -> list["Place"]:
    """The places of this process that are not closed yet."""
    return list(OPEN)


@dataclass(frozen=True)
class Ran:
    """What a command printed as JSON, its exit code, and its refusal."""

    json: Any
    code: int
    error: str


@dataclass
class Place:
    """A broker of one test, and what runs there; ``vhost`` is RabbitMQ's virtual host, where it is one."""

    name: str
    vhost: str
    environment: dict[str, str]
    folder: Path
    processes: list[Process] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def broker_url(self) -> str:
        """The URL of the broker."""
        return self.environment["CELERY_BROKER_URL"]

    @contextmanager
    def consumer(self) -> Iterator[None]:
        """Consume a queue of its own: a broker without a server sends delayed messages while any consumer lives."""
        with self.app.connection_for_read() as connection, connection.channel() as channel:
            queue = channel.queue_declare("", auto_delete=True).queue
            channel.basic_consume(queue, no_ack=True, callback=print)
            yield

    @property
    def is_rabbitmq(self) -> bool:
        """Whether the broker is RabbitMQ, which may be asked by its management API."""
        return self.broker_url.startswith("amqp")

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every finished task's record so far, oldest first."""
        from ami.telemetry.task_log import read

        return sorted(read(self.folder / "journal"), key=lambda record: record["started_at"])

    def ran(self, task: str, **fields: Any) -> list[dict[str, Any]]:
        """The records of one task, those alone whose fields have the given values."""
        found = [record for record in self.journal if record["task"].endswith(task)]
        return [record for record in found if all(record[name] == value for name, value in fields.items())]

    def use_test_database(self) -> None:
        """Point the processes at the test database of this pytest run."""
        from django.db import connection

        name = connection.settings_dict["NAME"]
        if connection.vendor == "sqlite":
            self.environment["DATABASE_URL"] = f"sqlite:///{name}"
            return
        parts = urlsplit(os.environ["DATABASE_URL"])
        self.environment["DATABASE_URL"] = urlunsplit(parts._replace(path=f"/{name}"))

    def start(self, argv: Sequence[str], **environment: str) -> Process:
        """Start a process of this place in a process group of its own."""
        log = self._new_log()
        with log.open("wb") as output:
            popen = subprocess.Popen(
                list(argv),
                cwd=ROOT,
                env={**self.environment, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._started(Process(argv, popen, log))

    def celery(self, *argv: str, **environment: str) -> Process:
        """Start ``celery -A config ARGV``, forked from a process that has set up Django for this environment."""
        log = self._new_log()
        line = ["-A", command.APP, *argv]
        warm = environment_of({**self.environment, **environment})
        return self._started(Process(["celery", *line], warm.start(line, log), log))

    def _new_log(self) -> Path:
        return self.folder / f"{re.sub('[^a-z0-9]+', '-', self.name.lower())[:40]}-{next(self._numbers)}.log"

    def _started(self, process: Process) -> Process:
        self.processes.append(process)
        return process

    def beat(self, *extra: str, **environment: str) -> Process:
        """Start beat with the arguments that deployment gives it."""
        return self.celery(*_arguments(command.beat(extra)), **environment)

    def worker(self, queue: str, *extra: str, inside: Sequence[str] = (), **environment: str) -> Process:
        """Start the worker of ``queue`` and wait until it consumes.

        With ``inside``, which is what to start it with (a cgroup, see ``tests.support.cgroups``), it is started by the
        command that deployment uses; without, it is forked with the same arguments.
        """
        process = self._begin(queue, extra, inside, environment)
        self._await_consumers({queue: process})
        return process

    def workers(self, *queues: str, **environment: str) -> list[Process]:
        """Start the workers of several queues at once and wait until all consume."""
        started = {queue: self._begin(queue, (), (), environment) for queue in queues}
        self._await_consumers(started)
        return list(started.values())

    def _begin(
        self, queue: str, extra: Sequence[str], inside: Sequence[str], environment: Mapping[str, str]
    ) -> Process:
        if inside:
            return self.start([*inside, sys.executable, "-m", "ami.topology", "worker", queue, *extra], **environment)
        topology = load({**self.environment, **environment})
        return self.celery(*_arguments(command.worker(topology, queue, extra)), **environment)

    def _await_consumers(self, started: Mapping[str, Process]) -> None:
        """Wait until each worker is ready, then for its first slot: it opens when a child is up."""
        for queue, process in started.items():
            until(partial(_is_ready, queue, process), 120, f"the worker of {queue} is ready")
        if not self.broker_url.startswith(("amqp", "objectstore")):
            return
        with self.app.connection_for_read() as connection:
            for queue, process in started.items():
                with suppress(AssertionError):  # A worker that begins with a hold has none.
                    until(partial(_has_slot, connection, queue, process), 30)

    def queues(self, *argv: str, routing: str = "split", check: bool = True) -> "Ran":
        """Run ``manage.py queues ARGV --json`` in this process, at this place; return what it printed and its code."""
        from django.core.management import call_command
        from django.core.management.base import CommandError
        from django.test import override_settings

        out, code, error = io.StringIO(), 0, ""
        topology = load({**SMALL, "ANTENNA_ROUTING": routing})
        with override_settings(ANTENNA_TOPOLOGY=topology):
            try:
                call_command("queues", *argv, "--json", stdout=out)
            except SystemExit as ended:
                code = int(ended.code or 0)
            except CommandError as refused:
                code, error = refused.returncode, str(refused)
        if check and code:
            raise AssertionError(f"queues {' '.join(argv)} exited {code}: {out.getvalue()} {error}")
        return Ran(json.loads(out.getvalue() or "null"), code, error)

    def stats(self, worker: str = "") -> dict[str, Any]:
        """What the governor of the (only) worker tells through ``celery inspect stats``."""
        asked = sum("worker" in process.argv and process.popen.poll() is None for process in self.processes)
        answers = self.app.control.inspect(timeout=10, limit=asked).stats() or {}
        (stats,) = [told for name, told in answers.items() if worker in name]
        return dict(stats["governor"])

    def send(self, task: str, *args: Any, origin: str | None = None, **options: Any) -> str:
        """Publish a task by name from a process of this place's environment; return its id."""
        headers = {"antenna_origin": origin} if origin else {}
        return self.app.send_task(task, args, headers=headers, **options).id

    @property
    def app(self) -> Any:
        """This process's Celery application, pointed at the place's broker."""
        from config import celery_app

        return celery_app

    def reconnect(self) -> None:
        """Forget this process's pooled connections: the broker was restarted."""
        set_broker(self.app, {})

    def depth(self, queue: str) -> int:
        """How many messages are ready in a queue of this place."""
        with self.app.connection_for_read() as connection, connection.channel() as channel:
            return depth(channel, queue)[0]

    def running(self) -> list[Running]:
        """Every process started here, also those that have ended."""
        return [
            Running(process.popen.pid, " ".join(process.argv), process.popen.poll(), process.log)
            for process in self.processes
        ]

    def keep_logs(self, folder: Path) -> None:
        """Copy what the processes have printed so far to ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        for process in self.processes:
            shutil.copy(process.log, folder)

    def close(self) -> None:
        """Kill every process of this place that still runs: its broker and its folder go next."""
        for process in self.processes:
            if "PYTEST_CURRENT_TEST" in os.environ:  # Pytest shows it where the test failed.
                print(f"--- {' '.join(process.argv[1:])}\n{process.text[-6000:]}")
            process.kill()  # Also the children of one that has ended: the next place has the same folder.


def _arguments(line: Sequence[str]) -> list[str]:
    """What a command line of ``ami.topology`` gives to ``celery -A config``."""
    return list(line[line.index(command.APP) + 1 :])


def _is_ready(queue: str, process: Process) -> bool:
    if process.popen.poll() is not None:
        raise AssertionError(f"The worker of {queue} stopped:\n{process.text}")
    return " ready." in process.text


def _has_slot(connection: Any, queue: str, process: Process) -> bool:
    with suppress(Exception), connection.channel() as channel:
        if depth(channel, queue)[1]:
            return True
    return any(sign in process.text for sign in (" received", "THROTTLE ACTIVE"))


@contextmanager
def new_place(name: str, broker: str = RABBITMQ) -> Iterator[Place]:
    """Make a broker and a folder, point this process's Celery at them, and remove all of it afterwards.

    The place after it has the same names: its processes are forked from where those of this one were.
    """
    folder = _new_folder()
    try:
        with new_broker(broker, folder.name, folder) as broker_url, celery_at(broker_url):
            place = Place(name, folder.name, _environment(folder, broker_url), folder)
            OPEN.append(place)
            try:
                yield place
            finally:
                OPEN.remove(place)
                place.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        broker_storage._forget_opened()  # Whatever broker a test has had in it: the next place has the same folder.
        if not OPEN:
            close_oldest()


def _new_folder() -> Path:
    """Make a folder under the first name of this process's own that no open place has."""
    for number in itertools.count():
        folder = Path(tempfile.gettempdir(), f"antenna-place-{PROCESS}-{number}")
        with suppress(FileExistsError):
            folder.mkdir(0o700)
            break
    for part in ("journal", "files/media", "files/static"):  # The settings made the last two for an earlier place.
        (folder / part).mkdir(parents=True)
    return folder


def _environment(folder: Path, broker_url: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        **SMALL,
        "CELERY_BROKER_URL": broker_url,
        "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", "config.settings.test"),
        "ANTENNA_EXTRA_TASKS": "tests.support.worker_tasks.basic",
        "GOVERNOR_STATE_DIR": str(folder / "governor"),
        "ANTENNA_TEST_FOLDER": str(folder / "files"),
        "ANTENNA_JOURNAL_DIR": str(folder / "journal"),
        "PYTHONUNBUFFERED": "1",
    }
