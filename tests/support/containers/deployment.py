"""The deployment as people start it: both compose files, in a project of its own, with secrets made for it."""

import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import yaml

from ami.topology.table import ROWS
from provision import dotenv, env_files
from tests.support.containers import reports
from tests.support.containers.engine import client, docker, execute, inspect, run, until
from tests.support.place import ROOT

FILES = ("docker-compose.yml", "docker-compose.worker.yml")
WORKERS = tuple(row.service for row in ROWS if not row.enabled_by)
QUEUES = tuple(row.queue for row in ROWS if not row.enabled_by)

#: What the services beside our processes read, and no process of ours.
LOGINS = set(dotenv.names(env_files.SERVICES_EXAMPLE.read_text()))

#: What the tests' own tasks are in; mounted into the workers, beside the image that is tested.
INSIDE = ROOT / "tests/support/containers/inside"

#: Small enough for two processors.
SMALL = {
    "ANTENNA_INGEST_CONCURRENCY": "2",
    "ANTENNA_HOUSEKEEPING_CONCURRENCY": "1",
    "ANTENNA_INTERACTIVE_CONCURRENCY": "2",
    "ANTENNA_FALLBACK_CONCURRENCY": "2",
    "WEB_CONCURRENCY": "1",
    # On a busy machine the migrations take longer than a worker waits by default before it is started anew.
    "ANTENNA_WAIT_SECONDS": "900",
}


@dataclass
class Deployment:
    """One compose project. ``variables`` are those of both its env files; later compose files change earlier ones."""

    folder: Path
    variables: dict[str, str]
    project: str = field(default_factory=lambda: f"antenna-smoke-{secrets.token_hex(4)}")
    files: Sequence[Path] = tuple(ROOT / name for name in FILES)
    #: The same variables with each secret in them; given where ``variables`` name files instead.
    plain: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reports.PROJECTS.add(self.project)
        self.folder.mkdir(parents=True, exist_ok=True)
        env = self.folder / "env"
        own = {"ANTENNA_ENV_FILE": str(env), "ANTENNA_SERVICES_ENV_FILE": str(env_files.services_file(env))}
        write(env, own | {name: value for name, value in self.variables.items() if name not in LOGINS})
        logins = {name: value for name, value in self.variables.items() if name in LOGINS}
        write(env_files.services_file(env), logins)

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
            raise AssertionError(f"{error}\n{reports.text(reports.containers({self.project}))}") from None

    def down(self, *argv: str) -> None:
        """Stop everything at once and remove its containers and networks; how a worker stops, other tests show."""
        self.compose("--profile", "*", "down", "--timeout", "1", *argv)

    def logs(self, *services: str) -> str:
        """What these services, or all of them, have said so far."""
        found = (container for service in services or (None,) for container in self._listed(service))
        return "".join(one.logs().decode(errors="replace") for one in found)

    def execute(self, service: str, *argv: str, check: bool = True, **environment: str) -> str:
        """Run a command inside a container of the service."""
        return execute(self.container(service), *argv, check=check, **environment)

    def container(self, service: str) -> str:
        """The id of the service's only container."""
        (found,) = self.containers(service)
        return found

    def containers(self, service: str) -> list[str]:
        return [one.id for one in self._listed(service)]

    def _listed(self, service: str | None = None) -> list[Any]:
        labels = [f"com.docker.compose.project={self.project}", "com.docker.compose.oneoff=False"]
        labels += [f"com.docker.compose.service={service}"] if service else []
        # Sparse: the list alone, without a further question about each container.
        return list(client().containers.list(all=True, filters={"label": labels}, sparse=True))

    @cached_property
    def declared(self) -> dict[str, dict[str, Any]]:
        """Every service as the product's own compose files declare it, without what the tests add."""
        files = (part for path in self.files if path.parent == ROOT for part in ("-f", str(path)))
        command = ["docker", "compose", "--project-directory", str(ROOT), "--env-file", str(self.folder / "env")]
        command += [*files, "--profile", "*", "config", "--format", "json"]
        return dict(json.loads(run(command, cwd=ROOT, env=dotenv.engine_environment(os.environ)))["services"])

    def is_healthy(self, service: str) -> bool:
        """Whether the health check that the compose files declare for the service succeeds now."""
        kind, *test = self.declared[service]["healthcheck"]["test"]
        argv = [part.replace("$$", "$") for part in test]
        argv = ["sh", "-c", *argv] if kind == "CMD-SHELL" else argv
        code, _ = client().containers.get(self.container(service)).exec_run(argv)
        return code == 0

    def state(self, service: str) -> dict[str, Any]:
        """What the engine says of the state of the service's container."""
        return dict(inspect(self.container(service))["State"])

    def health(self, service: str) -> str:
        return health(self.container(service))

    def port(self, service: str, port: int) -> int:
        """Where a port of the service is published on 127.0.0.1 now."""
        return int(inspect(self.container(service))["NetworkSettings"]["Ports"][f"{port}/tcp"][0]["HostPort"])

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
        found = re.sub(rf"@{service}:\d+", outside, (self.plain or self.variables)[name])
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
        return f"http://127.0.0.1:{self.port('proxy', 8080)}"

    def until_healthy(self, *services: str, seconds: float = 240) -> None:
        for service in services:
            container = self.container(service)
            until(lambda one=container: health(one) == "healthy", seconds, f"{service} has become healthy", 0.5)
            until(lambda name=service: self.is_healthy(name), seconds, f"{service} is healthy", 0.5)


def write(path: Path, variables: Mapping[str, str]) -> None:
    """Write an env file."""
    path.write_text("".join(f"{name}={dotenv.quoted(value)}\n" for name, value in variables.items()))


def health(container: str) -> str:
    """What the engine knows of a container's health."""
    return str(inspect(container)["State"].get("Health", {}).get("Status", ""))


def new_variables(**changes: str) -> dict[str, str]:
    """Return the variables of new env files, ports published wherever one is free, and images of the tests' own."""
    ports = dotenv.published_anywhere(env_files.EXAMPLE.read_text())
    with tempfile.TemporaryDirectory() as folder:
        env_files.write(env := Path(folder) / "env", changes=dotenv.LOCAL | ports)
        found = dotenv.variables(env.read_text() + env_files.services_file(env).read_text())
    images = {
        "ANTENNA_VERSION": "smoke",
        "ANTENNA_IMAGE": "antenna:smoke",
        "ANTENNA_PROCESSING_IMAGE": "antenna-processing:smoke",
        "ANTENNA_OBJECTS_IMAGE": "antenna-objects:smoke",
        "ANTENNA_DEMO_IMAGE": "antenna-demo:smoke",
    }
    return found | images | SMALL | changes


#: Who runs Antenna's own code, and which modules with tasks it is given; `demo` is there with `compose/demo.yml` alone.
OURS = (*WORKERS, "celerybeat", "web", "flower", "setup")
WITH_DEMO = "demo.tasks,smoke_tasks"

#: Where a health check notes that it has succeeded once: a tmpfs, so a container that is started again begins without.
PASSED = "/tmp/health-check-passed"  # noqa: S108 - inside a container
#: One question of the engine asks each second until the check succeeds, and each later one after a minute: a question
#: starts a process in the container, which costs the engine more than the check costs the container.
SELDOM = f"""[ ! -e {PASSED} ] || {{ sleep 60; exec "$$@"; }}
for second in $$(seq 100); do "$$@" && touch {PASSED} && exit 0; sleep 1; done; exit 1"""
#: The check that the compose files declare starts an Erlang machine, for two processor seconds; a test runs that once.
LISTENS = ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5672"]
#: What RabbitMQ's own machine does not need to be told here: not to spin while it waits.
NO_BUSY_WAIT = {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none"}


def frugal(declared: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what makes these services start soon and idle cheaply; what they are and do stays as it is declared."""
    changes: dict[str, dict[str, Any]] = {}
    for name, service in declared.items():
        if "healthcheck" not in service:
            continue
        kind, *test = service["healthcheck"]["test"]
        argv = LISTENS if name == "rabbitmq" else (["sh", "-c", *test] if kind == "CMD-SHELL" else test)
        check = {"test": ["CMD", "sh", "-c", SELDOM, "sh", *argv], "interval": "1s", "timeout": "120s", "retries": 300}
        changes[name] = {"healthcheck": check}
    if "rabbitmq" in changes:
        changes["rabbitmq"]["environment"] = NO_BUSY_WAIT
    if "postgres" in changes:
        # Nothing here has to survive a power failure.
        changes["postgres"]["command"] = ["postgres", "-c", "fsync=off"]
    return changes


def with_own_tasks(
    folder: Path, services: Sequence[str] = OURS, modules: str = WITH_DEMO, changes: Mapping[str, Any] | None = None
) -> Path:
    """Write a compose file that gives processes of ours the tasks of ``inside/smoke_tasks.py``, and makes ``changes``
    to services besides; return it.
    """
    service = {
        "volumes": [f"{INSIDE}:/smoke:ro"],
        "environment": {"PYTHONPATH": "/smoke", "ANTENNA_EXTRA_TASKS": modules},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "own-tasks.yml"
    found = {name: dict(each) for name, each in (changes or {}).items()}
    for name in services:
        found[name] = {**found.get(name, {}), **service}
    path.write_text(yaml.safe_dump({"services": found}))
    return path


#: The services that an image of ours is built for; the others are given the same image.
BUILT = ("web", "processing", "objects", "demo")


def build() -> None:
    """Build every image of this checkout under the name that the tests have for it."""
    with tempfile.TemporaryDirectory() as folder:
        files = [*(ROOT / name for name in FILES), ROOT / "compose/demo.yml"]
        made = Deployment(Path(folder), new_variables(), files=files)
        made.compose("--profile", "*", "build", "--quiet", *BUILT, timeout=1800)
