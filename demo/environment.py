"""The demo's environment: its folder, its ports, its database, and the variables of its processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg
from kombu import Connection

from ami import transports
from ami.topology import broker
from ami.topology.topology import load
from demo import report_archive

DATABASE = "antenna_demo"
CONNECT_SECONDS = 3
#: Counts follow a change sooner than in a deployment: the demo takes about a minute.
COUNTS_SECONDS = 5
#: Who asks for these uses no HTTP proxy, though the network may have one.
OWN_HOSTS = ("127.0.0.1", "localhost")

LOCK = "lock"
#: What the demo leaves in its folder: what `python -m demo.containers` keeps there, earlier reports, its lock.
BESIDE = {"containers", report_archive.EARLIER, LOCK}


class Environment(Protocol):
    """Where the main job runs: its folders and the URLs of web and of the push service. ``is_deployed``: web, workers
    and the push service run already.
    """

    @property
    def folder(self) -> Path: ...  # noqa: D102
    @property
    def media(self) -> Path: ...  # noqa: D102
    @property
    def journal(self) -> Path: ...  # noqa: D102
    @property
    def web(self) -> str: ...  # noqa: D102
    @property
    def push(self) -> str: ...  # noqa: D102
    @property
    def is_deployed(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True)
class LocalEnvironment:
    """A folder and local ports."""

    folder: Path
    web_port: int
    push_port: int
    is_deployed: bool = False

    @property
    def media(self) -> Path:
        """The folder of captures and crops."""
        return self.folder / "media"

    @property
    def journal(self) -> Path:
        """The folder of the workers' task logs."""
        return self.folder / "journal"

    @property
    def web(self) -> str:
        """The web server's URL."""
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def push(self) -> str:
        """The processing service's URL."""
        return f"http://127.0.0.1:{self.push_port}"

    def variables(self, services: Mapping[str, str | None]) -> dict[str, str]:
        """Return the environment variables of every process of the demo, this one included."""
        small = (os.cpu_count() or 2) <= 4
        sizes = {"INGEST": 2, "HOUSEKEEPING": 1, "INTERACTIVE": 2, "FALLBACK": 1} if small else {}
        concurrency = {f"ANTENNA_{key}_CONCURRENCY": str(size) for key, size in sizes.items()}
        beside_proxy = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), *OWN_HOSTS]))
        return {
            **os.environ,
            "no_proxy": beside_proxy,
            "NO_PROXY": beside_proxy,
            **{name: value or "" for name, value in services.items()},
            **{name: os.environ.get(name, value) for name, value in concurrency.items()},
            "DJANGO_SETTINGS_MODULE": "config.settings.local",
            "DJANGO_DEBUG": "0",
            "DJANGO_SECRET_KEY": uuid.uuid4().hex,
            "ANTENNA_MEDIA_ROOT": str(self.media),
            "ANTENNA_RESULTS_ROOT": str(self.folder / "results"),
            "ANTENNA_JOURNAL_DIR": str(self.journal),
            "ANTENNA_PUBLIC_URL": self.web,
            "ANTENNA_EXTRA_TASKS": "demo.tasks",
            "ANTENNA_COUNTS_SECONDS": str(COUNTS_SECONDS),
            "CELERY_RESULT_BACKEND": "",
            "GOVERNOR_STATE_DIR": str(self.folder / "governor"),
            "PYTHONUNBUFFERED": "1",
            # One arithmetic thread per process: the pullers are the parallelism.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }


class FolderInUse(Exception):
    """Another run has the folder; the message has the remedy."""


def lock(folder: Path, stack: ExitStack) -> None:
    """Make the folder, and keep a second run from it until ``stack`` exits.

    Raises:
        FolderInUse: another run has it.
        OSError: it cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = stack.enter_context((folder / LOCK).open("w"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderInUse(f"It runs already in {folder}: stop it, or give another --folder.") from None


def prepare(folder: Path) -> LocalEnvironment:
    """Empty the demo's folder but for earlier reports, and choose free ports."""
    folder.mkdir(parents=True, exist_ok=True)
    report_archive.set_aside(folder)
    for path in folder.iterdir():
        if path.is_dir() and path.name not in BESIDE:
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in BESIDE:
            path.unlink()
    environment = LocalEnvironment(folder, *_free_ports(2))
    for inner in (environment.media, environment.journal):
        inner.mkdir(parents=True)
    return environment


def fresh_database(url: str, folder: Path) -> str:
    """Recreate the demo's own database and return its URL: on the PostgreSQL server of ``url``, else an SQLite file in
    ``folder``. No other database or file is changed.
    """
    if not url.startswith(("postgres://", "postgresql://")):
        file = folder / f"{DATABASE}.sqlite3"
        for part in folder.glob(f"{file.name}*"):
            part.unlink()
        return f"sqlite:///{file}"
    with psycopg.connect(url.replace("postgres://", "postgresql://", 1), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    return urlunsplit(urlsplit(url)._replace(path=f"/{DATABASE}"))


def broker_in_use(url: str) -> str | None:
    """Return the name of one of our queues with messages or consumers on this broker, or None.

    The demo never shares queues with a deployment: their dead letters would mix.
    """
    topology = load()
    transports.register()
    with Connection(url, connect_timeout=CONNECT_SECONDS) as connection:
        for name in sorted(broker.own_queue_names(topology)):
            try:
                found = connection.channel().queue_declare(queue=name, passive=True)
            except connection.channel_errors:
                continue
            if found.message_count or found.consumer_count:
                return name
    return None


def purge(url: str) -> None:
    """Purge our queues on this broker; they were empty before the demo, so every message is the demo's."""
    with Connection(url, connect_timeout=CONNECT_SECONDS) as connection:
        for name in sorted(broker.own_queue_names(load())):
            channel = connection.channel()
            try:
                channel.queue_purge(name)
                channel.close()
            except connection.channel_errors:
                continue


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
