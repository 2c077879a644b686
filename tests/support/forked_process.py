"""What the two servers share that fork processes for tests: what they import first, and the face of a process."""

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

#: Libraries of workers, beat and web that can be imported before Django has settings, and take long.
LIBRARIES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.backends.redis",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.fixups.django",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "cron_descriptor",
    "crontab",
    "csp.middleware",
    "django.contrib.admin.options",
    "django.contrib.auth.hashers",
    "django.contrib.auth.password_validation",
    "django.db.backends.postgresql.base",
    "django_celery_beat.clockedschedule",
    "django_celery_beat.tzcrontab",
    "drf_spectacular.utils",
    "environ",
    "httpx",
    "kombu.transport.pyamqp",
    "msgspec.json",
    "nats",
    "PIL.Image",
    "pydantic.json_schema",
    "pydantic_settings",
    "regex",
    "rest_framework.permissions",
    "rest_framework.serializers",
    "tests.support.time_zones",
)


class ForkedProcess(ABC):
    """A process that a server forked: what tests use of ``subprocess.Popen``."""

    def __init__(self, argv: Sequence[str], pid: int) -> None:
        self.args = list(argv)
        self.pid = pid
        self.returncode: int | None = None

    @abstractmethod
    def _ended(self, seconds: float | None) -> int | None:
        """Return the exit code, None when the process does not end within the time; None waits for good."""

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when it has ended."""
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
