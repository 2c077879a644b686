"""A process with production settings and an environment of the test's own."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import forked_python
from tests.support.locks import locked
from tests.support.place import ROOT

SECRETS = {
    "broker": "broker-secret-81c2",
    "redis": "redis-secret-4f0a",
    "database": "database-secret-7be3",
    "nats": "nats-secret-92d5",
    "key": "q8vK2mXr7TzW4nYb1LcJ6hSdF9gPaE3uIoQwRtNxMkVjZsHyBe5D",
}
GOOD = {
    "DJANGO_SETTINGS_MODULE": "config.settings.production",
    "DJANGO_SECRET_KEY": SECRETS["key"],
    "DJANGO_ALLOWED_HOSTS": "antenna.example.org",
    "ANTENNA_PROXIES": "1",
    "CELERY_BROKER_URL": f"amqp://antenna:{SECRETS['broker']}@rabbitmq.invalid:5672/antenna",
    "REDIS_URL": f"redis://:{SECRETS['redis']}@redis.invalid:6379/0",
    "DATABASE_URL": f"postgres://antenna:{SECRETS['database']}@postgres.invalid:5432/antenna",
    "NATS_URL": f"nats://antenna:{SECRETS['nats']}@nats.invalid:4222",
}
Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**changes: str) -> dict[str, str]:
    """The good environment with these changes; an empty value stands for a missing one."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**inherited, **GOOD, **changes}


@pytest.fixture(scope="session")
def run() -> Run:
    """Run ``python ARGV`` with the good environment and these changes."""

    def run(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return forked_python.run(argv, env=environment(**changes))

    return run


@pytest.fixture(scope="session")
def run_anew() -> Run:
    """The same in a new interpreter, for what only that shows; it takes many times as long."""

    def run_anew(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *argv],
            cwd=ROOT,
            env=environment(**changes),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run_anew


@pytest.fixture(scope="session")
def migrated(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database that ``manage.py migrate`` made with local settings, for tests to copy; processes that run
    tests side by side share one.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    file = shared / "migrated.sqlite3"
    with locked(shared / "migrated.lock"):
        if not file.exists():
            made = base / "migrated.sqlite3"
            nothing = dict.fromkeys(("CELERY_BROKER_URL", "REDIS_URL", "NATS_URL"), "")
            settings = {
                **nothing,
                "DJANGO_SETTINGS_MODULE": "config.settings.local",
                "DATABASE_URL": f"sqlite:///{made}",
            }
            done = run("-W", "error", "manage.py", "migrate", "--verbosity=0", **settings)
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
            copy(made, file)
    return file


def copy(database: Path, to: Path) -> None:
    """Copy an SQLite database, also into one that processes have opened."""
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(to)) as target:
        source.backup(target)
