"""The folder and the port of the local Antenna, and the variables of its processes."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from demo.brokers import Say, private_nats
from demo.environment import FolderInUse, LocalEnvironment, lock
from demo.local.login import Login, write_private
from provision.kind import NothingFound
from provision.ports import is_free

#: What another terminal needs to run commands beside; secrets are in it.
ENVIRONMENT_FILE = "environment.sh"


class NotUsable(Exception):
    """The port or the folder cannot be used; the message has the remedy."""


@dataclass
class LocalPlace:
    """``has_nats``: services that pull their work can get some."""

    folder: Path
    port: int
    has_nats: bool = field(default=False, init=False)

    @property
    def web(self) -> str:
        """The URL of web."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def media(self) -> Path:
        """The folder of captures and crops."""
        return self.folder / "media"

    @property
    def pulses(self) -> Path:
        """The folder of the workers' pulses."""
        return self.folder / "pulses"

    def claim(self, stack: ExitStack) -> None:
        """Make the folder, and keep a second run from it until ``stack`` exits.

        Raises:
            NotUsable: another run has it, it cannot be written to, or the port is in use.
        """
        try:
            for inner in (self.media, self.folder / "journal", self.pulses):
                inner.mkdir(parents=True, exist_ok=True)
            lock(self.folder, stack)
        except FolderInUse as error:
            raise NotUsable(str(error)) from None
        except OSError as error:
            raise NotUsable(f"{self.folder} cannot be used ({error.strerror}); give another --folder.") from None
        if not is_free(self.port):
            raise NotUsable(
                f"Port {self.port} is in use by another program: stop it, or give another, as in 'make run PORT=8001'."
            )

    def variables(self, login: Login, stack: ExitStack, say: Say) -> dict[str, str]:
        """Start NATS, and return the variables of every process; a file has those that another terminal needs."""
        services: dict[str, str | None] = {
            "CELERY_BROKER_URL": f"objectstore+{(self.folder / 'broker').as_uri()}",
            "DATABASE_URL": f"sqlite:///{self.folder / 'antenna.sqlite3'}",
            "RABBITMQ_MANAGEMENT_URL": None,
            "REDIS_URL": None,
        }
        try:
            services |= private_nats(stack, say)
            self.has_nats = True
        except NothingFound as error:
            say(f"no NATS, so the processing service does not run: {error}")
        changed = {
            "DJANGO_SECRET_KEY": login.key,
            "ANTENNA_EXTRA_TASKS": "",
            "ANTENNA_STARTED_BY": "make",
        }
        variables = LocalEnvironment(self.folder, self.port, self.port).variables(services) | changed
        own = {*services, *changed, "DJANGO_SETTINGS_MODULE", "GOVERNOR_STATE_DIR", "CELERY_RESULT_BACKEND"}
        own |= {name for name in variables if name.startswith("ANTENNA_")}
        lines = "".join(f"export {name}={shlex.quote(variables[name])}\n" for name in sorted(own & set(variables)))
        write_private(self.folder / ENVIRONMENT_FILE, lines)
        return variables
