"""The attacked deployment: its own database and broker, the web server and a worker as deployed."""

import os
import random
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.support.web_server import Web, children, rss_kib

INGEST = "antenna-ingest"
#: One proxy, simulated by the attack: the last entry of X-Forwarded-For is the client's address.
SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "config.settings.test",
    "ANTENNA_PROXIES": "1",
    "ANTENNA_INGEST_CONCURRENCY": "1",
    "ANTENNA_LOG_LEVEL": "WARNING",
}


@dataclass
class Stage:
    """The attacked processes; memory in MiB."""

    place: Any
    web: Web
    worker: Any
    web_pids: list[int]
    before: float = 0.0

    @property
    def web_mib(self) -> float:
        """The memory of the web server's worker processes."""
        return rss_kib(self.web.workers) / 1024

    @property
    def worker_mib(self) -> float:
        """The memory of the ingest worker and its children."""
        pid = self.worker.popen.pid
        return rss_kib([pid, *children(pid)]) / 1024

    @property
    def memory(self) -> str:
        """The memory of each process, as text."""
        pid = self.worker.popen.pid
        parts = ", ".join(f"{rss_kib([each]) / 1024:.0f}" for each in (pid, *children(pid)))
        return f"web {self.web_mib:.0f} MiB, worker {self.worker_mib:.0f} MiB ({parts})"

    @property
    def mib(self) -> float:
        return self.web_mib + self.worker_mib

    def deaths(self) -> list[str]:
        """Return the processes that ended since the last call; restart an ended worker."""
        now = self.web.workers
        ended = [f"web worker {pid} ended" for pid in self.web_pids if pid not in now]
        self.web_pids = now
        if self.worker.popen.poll() is not None:
            ended.append(f"the ingest worker ended with {self.worker.popen.returncode}")
            self.worker = self.place.worker(INGEST)
        return ended


@contextmanager
def database(migrated: str = "") -> Iterator[None]:
    """Create a database for this run, set Django up on it, and remove it afterwards.

    ``migrated`` is the name of a database on the same server that it begins as a copy of.
    """
    import psycopg

    server, name = os.environ["DATABASE_URL"], f"attack_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{migrated or "template1"}"')
    try:
        with tempfile.TemporaryDirectory(prefix="antenna-attack-") as folder:
            url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
            os.environ.update(SETTINGS, DATABASE_URL=url, ANTENNA_TEST_FOLDER=folder)
            _set_up()
            yield
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _set_up() -> None:
    import django
    from django.conf import settings

    django.setup()
    from django.core.cache import cache
    from django.core.management import call_command
    from django.db import connection

    if settings.DEBUG:
        sys.exit("DJANGO_DEBUG is on; attack what is deployed.")
    call_command("migrate", interactive=False, verbosity=0)
    cache.clear()
    with connection.cursor() as cursor:
        # Streams on NATS are named after jobs, and the server may be shared.
        first = random.randrange(10**9, 2 * 10**9, 1000)
        cursor.execute("SELECT setval(pg_get_serial_sequence('jobs_job', 'id'), %s)", [first])


@contextmanager
def stage() -> Iterator[Stage]:
    """Start the web server and the ingest worker; the database exists already."""
    from tests.support.place import new_place
    from tests.support.web_server import free_port, start_web

    with new_place("attack") as place:
        place.environment.update(SETTINGS, ANTENNA_TEST_FOLDER=os.environ["ANTENNA_TEST_FOLDER"])
        web = start_web(place, free_port())
        place.queues("declare")
        worker = place.worker(INGEST)
        web.await_ready()
        try:
            yield Stage(place, web, worker, web.workers)
        finally:
            _delete_streams()


def _delete_streams() -> None:
    from ami.jobs.models import Job
    from ami.jobs.services import jetstream

    for job in Job.objects.values_list("pk", flat=True):
        jetstream.delete_job(job)
    jetstream.close()


def file_root() -> Path:
    """Return where this run's files are."""
    return Path(os.environ["ANTENNA_TEST_FOLDER"])
