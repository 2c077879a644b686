"""A place to test in: a broker of its own, the environment of the processes there, and those processes."""

import io
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.support.brokers import BROKERS as BROKERS
from tests.support.brokers import FOLDER as FOLDER
from tests.support.brokers import RABBITMQ, celery_at, new_broker, set_broker
from tests.support.brokers import management as management

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "ANTENNA_INGEST_CONCURRENCY": "2",
    "ANTENNA_HOUSEKEEPING_CONCURRENCY": "1",
    "ANTENNA_INTERACTIVE_CONCURRENCY": "2",
    "ANTENNA_FALLBACK_CONCURRENCY": "1",
}


def until(condition: Callable[[], Any], seconds: float = 30, what: str = "") -> Any:
    """Return the first true answer of ``condition``; fail when none came before the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"Not within {seconds} s: {what or condition}")
        time.sleep(0.05)


@dataclass
class Process:
    """One process of a place, its output in a file."""

    argv: Sequence[str]
    popen: subprocess.Popen[bytes]
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
    """A broker of one test, and what runs there; ``vhost`` is its name, RabbitMQ's virtual host where it is one."""

    vhost: str
    environment: dict[str, str]
    folder: Path
    processes: list[Process] = field(default_factory=list)

    @property
    def broker_url(self) -> str:
        """The URL of the broker."""
        return self.environment["CELERY_BROKER_URL"]

    @property
    def has_delays(self) -> bool:
        """Whether the broker itself keeps a delayed message until it is due, where no depth counts it."""
        return self.broker_url.startswith("amqp")

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every finished task's record so far, oldest first."""
        from ami.telemetry.journal import read

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
        log = self.folder / f"{len(self.processes)}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                list(argv),
                cwd=ROOT,
                env={**self.environment, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Process(argv, popen, log)
        self.processes.append(process)
        return process

    def worker(self, queue: str, *extra: str, inside: Sequence[str] = (), **environment: str) -> Process:
        """Start the worker of ``queue`` as deployment does, and wait until it consumes; ``inside`` is what to start it
        with (a cgroup, see ``tests.support.cgroups``).
        """
        argv = [*inside, sys.executable, "-m", "ami.topology", "worker", queue, *extra]
        process = self.start(argv, **environment)

        def ready() -> bool:
            if process.popen.poll() is not None:
                raise AssertionError(f"The worker of {queue} stopped:\n{process.text}")
            return " ready." in process.text

        until(ready, 60, f"the worker of {queue} is ready; it said:\n{process.text}")
        self._await_consumer(queue, process)
        return process

    def _await_consumer(self, queue: str, process: Process) -> None:
        """Wait a moment for the first slot: it opens when a child is up, unless the worker begins with a hold."""
        from ami.queues.declare import depth

        deadline = time.monotonic() + 3
        while self.broker_url.startswith(("amqp", "objectstore")) and time.monotonic() < deadline:
            with suppress(Exception), self.app.connection_for_read() as connection, connection.channel() as channel:
                if depth(channel, queue)[1] or " received" in process.text or "THROTTLE ACTIVE" in process.text:
                    return
            time.sleep(0.05)

    def run(self, *argv: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``manage.py ARGV`` here and return what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *argv],
            cwd=ROOT,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check and done.returncode:
            raise AssertionError(f"manage.py {' '.join(argv)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def queues(self, *argv: str, routing: str = "split", check: bool = True) -> "Ran":
        """Run ``manage.py queues ARGV --json`` in this process, at this place; return what it printed and its code."""
        from django.core.management import call_command
        from django.core.management.base import CommandError
        from django.test import override_settings

        from ami.topology.topology import load

        out, code, error = io.StringIO(), 0, ""
        topology = load({**SMALL, "ANTENNA_ROUTING": routing})
        with override_settings(ANTENNA_TOPOLOGY=topology):
            try:
                call_command("queues", *argv, "--json", stdout=out)
            except SystemExit as ended:
                code = int(ended.code or 0)
            except CommandError as refused:
                code, error = 1, str(refused)
        if check and code:
            raise AssertionError(f"queues {' '.join(argv)} exited {code}: {out.getvalue()} {error}")
        return Ran(json.loads(out.getvalue() or "null"), code, error)

    def stats(self, worker: str = "") -> dict[str, Any]:
        """What the governor of the (only) worker tells through ``celery inspect stats``."""
        answers = self.app.control.inspect(timeout=3).stats() or {}
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
        from ami.queues.declare import depth

        with self.app.connection_for_read() as connection, connection.channel() as channel:
            return depth(channel, queue)[0]

    def running(self) -> list[Running]:
        """Every process started here, also those that have ended."""
        return [
            Running(process.popen.pid, " ".join(process.argv), process.popen.poll(), process.log)
            for process in self.processes
        ]

    def keep_logs(self, folder: Path) -> None:
        """Copy what the processes have printed so far to ``folder``, under the name of this place."""
        folder.mkdir(parents=True, exist_ok=True)
        for process in self.processes:
            shutil.copyfile(process.log, folder / f"{self.vhost}-{process.log.name}")

    def close(self) -> None:
        """End every process of this place that still runs."""
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.terminate()
        for process in self.processes:
            process.stop(seconds=10)
            if "PYTEST_CURRENT_TEST" in os.environ:  # Pytest shows it where the test failed.
                print(f"--- {' '.join(process.argv[1:])}\n{process.text[-6000:]}")


@contextmanager
def new_place(name: str, broker: str = RABBITMQ) -> Iterator[Place]:
    """Make a broker and a folder, point this process's Celery at them, and remove all of it afterwards."""
    slug = f"{re.sub('[^a-z0-9]+', '-', name.lower())[:40]}-{uuid.uuid4().hex[:6]}"
    with tempfile.TemporaryDirectory(prefix="antenna-place-") as made:
        folder = Path(made)
        for part in ("journal", "files"):
            (folder / part).mkdir()
        with new_broker(broker, slug, folder) as broker_url, celery_at(broker_url):
            place = Place(slug, _environment(folder, broker_url), folder)
            OPEN.append(place)
            try:
                yield place
            finally:
                OPEN.remove(place)
                place.close()


def _environment(folder: Path, broker_url: str) -> dict[str, str]:
    return {
        **os.environ,
        **SMALL,
        "CELERY_BROKER_URL": broker_url,
        "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", "config.settings.test"),
        "ANTENNA_EXTRA_TASKS": "tests.support.worker_tasks.basic",
        "GOVERNOR_STATE_DIR": str(folder / "governor"),
        "ANTENNA_TEST_FOLDER": str(folder / "files"),
        "ANTENNA_JOURNAL_DIR": str(folder / "journal"),
        "PYTHONUNBUFFERED": "1",
    }
