"""The parts that the suite is run in; every test belongs to one, and one marked ``sqlite`` to a second."""

import os
import sys
from pathlib import Path
from typing import Any

import inotify_simple
import pytest

#: In tests/unit, without processes and without services: ``make test-fast``.
FAST = "fast"
#: Starts processes, but needs no service.
PROCESSES = "processes"
#: Needs RabbitMQ, Redis, PostgreSQL or NATS.
SERVICES = "services"
#: Needs services and an otherwise idle machine.
ALONE = "alone"
#: Needs a container engine.
CONTAINERS = "containers"
PARTS = (FAST, PROCESSES, SERVICES, ALONE, CONTAINERS)

ROOT = Path(__file__).resolve().parents[1]
NO_SERVICES = ("integration/processing_service/", "integration/provision/")
DATABASE_FIXTURES = {
    "db",
    "transactional_db",
    "django_db_reset_sequences",
    "django_db_serialized_rollback",
    "live_server",
}
#: Audit events of a new process (https://docs.python.org/3/library/audit_events.html).
NEW_PROCESS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}


def parts_of(item: pytest.Item) -> set[str]:
    """Return the part that runs ``item``; two parts where its database is PostgreSQL in one and SQLite in the other."""
    path = item.path.relative_to(ROOT).as_posix()
    if path.startswith("smoke/"):
        return {CONTAINERS}
    if item.get_closest_marker("alone"):
        if not path.startswith("acceptance/"):
            raise pytest.UsageError(f"{item.nodeid} is marked `alone` outside tests/acceptance: that part looks there.")
        return {ALONE}
    without_services = PROCESSES if item.get_closest_marker("processes") else FAST
    if path.startswith("unit/"):
        if not needs_database(item):
            return {without_services}
        return {SERVICES, without_services} if item.get_closest_marker("sqlite") else {SERVICES}
    return {PROCESSES} if path.startswith(NO_SERVICES) else {SERVICES}


def needs_database(item: pytest.Item) -> bool:
    """Whether the test uses the database of this run."""
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool(item.get_closest_marker("django_db") or fixtures & DATABASE_FIXTURES)


def select(items: list[pytest.Item], parts: set[str]) -> list[pytest.Item]:
    """Keep the tests of these parts in ``items``; return the others."""
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        (kept if parts_of(item) & parts else others).append(item)
    items[:] = kept
    return others


class NoProcesses:
    """Fails a test that starts a process without being marked so: it would make ``make test-fast`` slow."""

    def __init__(self) -> None:
        self._running: pytest.Item | None = None
        self._pid = os.getpid()

    def install(self) -> None:
        """Watch this process from now on; an audit hook cannot be removed."""
        inotify_simple.INotify().close()  # The first runs ldconfig; no test is to be blamed for that.
        sys.addaudithook(self.audit)

    def watch(self, item: pytest.Item) -> None:
        """Hold ``item`` responsible for processes from now on, if it is of the fast part."""
        self._running = item if FAST in parts_of(item) else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Remember which test runs."""
        self.watch(item)
        try:
            return (yield)
        finally:
            self._running = None

    def audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event in NEW_PROCESS and self._running is not None and os.getpid() == self._pid:
            raise AssertionError(f"{self._running.nodeid} starts a process ({event}): mark it with `processes`.")
