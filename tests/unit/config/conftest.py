"""A process with production settings and an environment of the test's own."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

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


@pytest.fixture
def run() -> Run:
    """Run ``python ARGV`` with the good environment and these changes; an empty value stands for a missing one."""

    def run(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return subprocess.run(
            [sys.executable, *argv],
            cwd=ROOT,
            env={**inherited, **GOOD, **changes},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
