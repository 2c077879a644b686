"""The deployment as people start it: both compose files, in a project of its own, with secrets made for it."""

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import yaml

from ami.topology.table import ROWS
from provision import dotenv
from tests.support.containers.engine import docker, inspect, run
from tests.support.place import ROOT, until

FILES = ("docker-compose.yml", "docker-compose.worker.yml")
WORKERS = tuple(row.service for row in ROWS if not row.enabled_by)
QUEUES = tuple(row.queue for row in ROWS if not row.enabled_by)

#: What the tests' own tasks are in; mounted into the workers, beside the image that is tested.
INSIDE = ROOT / "tests/support/containers/inside"

#: Small enough for two processors.
SMALL = {
    "ANTENNA_INGEST_CONCURRENCY": "2",
    "ANTENNA_HOUSEKEEPING_CONCURRENCY": "1",
    "ANTENNA_INTERACTIVE_CONCURRENCY": "2",
    "ANTENNA_FALLBACK_CONCURRENCY": "2",
    "WEB_CONCURRENCY": "1",
}


@dataclass
class Deployment:
    """One compose project. ``variables`` is its `.env`; ``files`` are compose files, later ones change earlier ones."""

    folder: Path
    variables: dict[str, str]
    project: str = field(default_factory=lambda: f"antenna-smoke-{secrets.token_hex(4)}")
    files: Sequence[Path] = tuple(ROOT / name for name in FILES)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in self.variables.items())
        (self.folder / "env").write_text("".join(lines))

    def compose(self, *argv: str, timeout: float = 300, check: bool = True) -> str:
        """Run `docker compose` on this project and return what it printed."""
        files = (part for path in self.files for part in ("-f", str(path)))
        command = ["docker", "compose", "--ansi", "never", "--project-directory", str(ROOT)]
        command += ["--env-file", str(self.folder / "env"), "-p", self.project, *files, *argv]
        return run(command, timeout=timeout, check=check, cwd=ROOT, env=dotenv.engine_environment(os.environ))

    def up(self, *argv: str, timeout: float = 600) -> None:
        """Start it, or what is named, and return when all of that is healthy; fail with the logs."""
        try:
            self.compose("up", "--detach", "--wait", *argv, timeout=timeout)
        except (AssertionError, TimeoutExpired) as error:
            raise AssertionError(f"{error}\n{self.logs('--tail', '40')}") from None

    def down(self, *argv: str) -> None:
        """Stop everything and remove its containers and networks; a worker that is idle ends at once."""
        self.compose("--profile", "*", "down", "--timeout", "20", *argv)

    def logs(self, *argv: str) -> str:
        return self.compose("logs", "--no-color", *argv)

    def execute(self, service: str, *argv: str, timeout: float = 120, check: bool = True) -> str:
        """Run a command inside a container of the service."""
        return self.compose("exec", "-T", service, *argv, timeout=timeout, check=check)

    def container(self, service: str) -> str:
        """The id of the service's only container."""
        (found,) = self.containers(service)
        return found

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--all", "--quiet", service).split()

    def state(self, service: str) -> dict[str, Any]:
        """What the engine says of the state of the service's container."""
        return dict(inspect(self.container(service))["State"])

    def health(self, service: str) -> str:
        return str(self.state(service).get("Health", {}).get("Status", ""))

    def port(self, service: str, port: int) -> int:
        """Where a port of the service is published on 127.0.0.1 now."""
        return int(self.compose("port", service, str(port)).strip().rsplit(":", 1)[1])

    def left(self) -> dict[str, list[str]]:
        """What there is of this project: containers, networks, volumes."""
        label = f"label=com.docker.compose.project={self.project}"
        return {
            "containers": docker("ps", "--all", "--quiet", "--filter", label).split(),
            "networks": docker("network", "ls", "--quiet", "--filter", label).split(),
            "volumes": docker("volume", "ls", "--quiet", "--filter", label).split(),
        }

    # The services, from outside.

    def url(self, name: str, service: str, port: int, path: str | None = None) -> str:
        """Return the URL in a variable, as it is reached from this machine."""
        outside = f"@127.0.0.1:{self.port(service, port)}"
        found = re.sub(rf"@{service}:\d+", outside, self.variables[name])
        return found if path is None else found.rsplit("/", 1)[0] + path

    @property
    def broker_url(self) -> str:
        return self.url("CELERY_BROKER_URL", "rabbitmq", 5672)

    @property
    def database_url(self) -> str:
        return self.url("DATABASE_URL", "postgres", 5432)

    @property
    def redis_url(self) -> str:
        return self.url("REDIS_URL", "redis", 6379)

    @property
    def management_url(self) -> str:
        return self.url("RABBITMQ_MANAGEMENT_URL", "rabbitmq", 15672)

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.port('web', 8000)}"

    def until_healthy(self, *services: str, seconds: float = 120) -> None:
        for service in services:
            until(lambda name=service: self.health(name) == "healthy", seconds, f"{service} is healthy")


def new_variables(**changes: str) -> dict[str, str]:
    """Return the variables of a new `.env`, every port published wherever one is free, and images of the tests' own."""
    example = (ROOT / ".env.example").read_text()
    images = {
        "ANTENNA_VERSION": "smoke",
        "ANTENNA_IMAGE": "antenna:smoke",
        "ANTENNA_PROCESSING_IMAGE": "antenna-processing:smoke",
        "ANTENNA_OBJECTS_IMAGE": "antenna-objects:smoke",
        "ANTENNA_DEMO_IMAGE": "antenna-demo:smoke",
    }
    ports = dotenv.published_anywhere(example)
    found = dotenv.variables(dotenv.with_secrets(example, dotenv.LOCAL | ports))
    return found | images | SMALL | changes


#: Who runs Antenna's own code, and which modules with tasks it is given; `demo` is there with `compose/demo.yml` alone.
OURS = (*WORKERS, "celerybeat", "web", "flower", "setup")
WITH_DEMO = "demo.tasks,smoke_tasks"


def with_own_tasks(folder: Path, services: Sequence[str] = OURS, modules: str = WITH_DEMO) -> Path:
    """Write a compose file that gives processes of ours the tasks of ``inside/smoke_tasks.py``; return it."""
    service = {
        "volumes": [f"{INSIDE}:/smoke:ro"],
        "environment": {"PYTHONPATH": "/smoke", "ANTENNA_EXTRA_TASKS": modules},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "own-tasks.yml"
    path.write_text(yaml.safe_dump({"services": {name: service for name in services}}))
    return path
