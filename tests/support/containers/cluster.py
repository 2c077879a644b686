"""Three RabbitMQ nodes as docker-compose.cluster.yml starts them, in a project of their own."""

import json
import os
import secrets
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import httpx
import yaml

from ami.topology import definitions
from ami.topology.topology import load
from provision import dotenv
from tests.support.containers import engine, reports
from tests.support.containers.deployment import NO_BUSY_WAIT
from tests.support.containers.engine import until
from tests.support.place import ROOT

IMAGE = "rabbitmq:3-management"
NODES = ("rabbitmq", "rabbitmq_2", "rabbitmq_3")
FILES = ("docker-compose.yml", "docker-compose.cluster.yml")
USER, VHOST = "antenna", "antenna"
#: Between two looks at a node that starts: it takes many seconds, and the engine reads its whole log each time.
START_LOOK_SECONDS = 1.0


def management_of(node: str) -> str:
    """Return the name of a node's port for the management API."""
    return f"{node} management"


@dataclass(frozen=True)
class Cluster:
    """A running cluster; ``ports`` holds each node's ports on this machine: for AMQP, and for management."""

    project: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    password: str
    ports: Mapping[str, int]

    def urls(self, first: str) -> str:
        """Return CELERY_BROKER_URL with all nodes, ``first`` at the front."""
        nodes = (first, *(node for node in NODES if node != first))
        return ";".join(f"amqp://{USER}:{self.password}@127.0.0.1:{self.ports[node]}/{VHOST}" for node in nodes)

    def compose(self, *arguments: str, timeout: float = 300) -> str:
        """Run ``docker compose ARGUMENTS`` on this project; return what it printed."""
        return engine.run([*self.command, *arguments], timeout=timeout, cwd=ROOT, env=dict(self.environment))

    def queues(self, node: str = "rabbitmq") -> dict[str, dict[str, Any]]:
        """Return every queue by its name, as the management API of ``node`` tells; nothing while it does not answer.

        RabbitMQ's tools would tell the same, and each of their calls starts an Erlang machine.
        """
        url = f"http://127.0.0.1:{self.ports[management_of(node)]}/api/queues/{VHOST}"
        try:
            answer = httpx.get(url, auth=(USER, self.password), timeout=60)
        except httpx.TransportError:
            return {}
        return {queue["name"]: queue for queue in answer.json()} if answer.is_success else {}

    def member_counts(self, column: str = "members", node: str = "rabbitmq") -> dict[str, int]:
        """Return how many members each queue has (``members``), or how many of them run (``online``)."""
        return {name: len(queue.get(column, ())) for name, queue in self.queues(node).items()}

    def leader(self, queue: str) -> str:
        """Return the node that leads ``queue``."""
        return str(self.queues()[queue]["leader"]).removeprefix("rabbit@")

    def kill(self, node: str) -> None:
        """SIGKILL a node's process; Docker's restart policy starts it again, as it does after no ``docker kill``."""
        os.kill(self._inspect(node)["State"]["Pid"], signal.SIGKILL)

    def restarts(self, node: str) -> int:
        """Return how often Docker has started a node anew by itself."""
        return int(self._inspect(node)["RestartCount"])

    def starts(self, node: str) -> int:
        """Return how often a node has said that it has started, which it does when its definitions are loaded."""
        return self._container(node).logs().count(b"Server startup complete")

    def _container(self, node: str) -> Any:
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={node}"]
        (found,) = engine.client().containers.list(all=True, filters={"label": labels}, sparse=True)
        return found

    def _inspect(self, node: str) -> dict:
        return engine.inspect(self._container(node).id)


@contextmanager
def new_cluster(folder: Path) -> Iterator[Cluster]:
    """Give a cluster whose queues have all their members; its containers and volumes are removed afterwards."""
    password, project = secrets.token_hex(8), f"rmq-{secrets.token_hex(4)}"
    reports.PROJECTS.add(project)
    ports = _free_ports()
    (override := folder / "override.yml").write_text(yaml.safe_dump(_override(folder, password, ports)))
    command = ("docker", "compose", "--project-name", project, "--env-file", os.devnull)
    command += tuple(argument for file in (*FILES, str(override)) for argument in ("--file", file))
    cluster = Cluster(project, command, _environment(folder, ports), password, ports)
    try:
        try:
            cluster.compose("up", "--detach", *NODES)
            # The tools start an Erlang machine at each call: they are asked once there is something to tell.
            for node in NODES:
                until(lambda name=node: cluster.starts(name), 600, f"{node} has started", START_LOOK_SECONDS)
            said = cluster.compose("up", "members", timeout=600)
        except (AssertionError, TimeoutExpired) as error:
            raise AssertionError(f"{error}\n{reports.text(reports.containers({project}))}") from None
        assert "Every quorum queue has three members." in said
        yield cluster
    finally:
        cluster.compose("down", "--volumes", "--remove-orphans", "--timeout", "1")


def _override(folder: Path, password: str, ports: Mapping[str, int]) -> dict:
    """Publish every node, and load definitions that are written here, so that no image of ours has to be built."""
    loaded = folder / "definitions"
    loaded.mkdir(mode=0o755)
    rendered = definitions.render(load({}), definitions.Account(USER, password, VHOST))
    (loaded / "antenna.json").write_text(json.dumps(rendered))
    device = {"type": "none", "o": "bind", "device": str(loaded)}
    # No service here waits for a health check, and each one would cost a start of an Erlang machine.
    idle = {"healthcheck": {"disable": True}, "environment": NO_BUSY_WAIT}
    services = {
        node: {"ports": [f"127.0.0.1:{ports[node]}:5672", f"127.0.0.1:{ports[management_of(node)]}:15672"], **idle}
        for node in NODES[1:]
    }
    services["rabbitmq"] = idle
    services["definitions"] = {"image": IMAGE, "entrypoint": ["true"], "command": []}
    return {"services": services, "volumes": {"definitions": {"driver": "local", "driver_opts": device}}}


def _environment(folder: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """What the compose files are given: the cookie in the services' env file, and no env file of ours."""
    (services := folder / "env.services").write_text(f"ERLANG_COOKIE={secrets.token_hex(16)}\n")
    return {
        **dotenv.engine_environment(os.environ),
        "ANTENNA_ENV_FILE": os.devnull,
        "ANTENNA_SERVICES_ENV_FILE": str(services),
        "RABBITMQ_IMAGE": IMAGE,
        "PUBLISHED_RABBITMQ_PORT": str(ports["rabbitmq"]),
        "PUBLISHED_RABBITMQ_MANAGEMENT_PORT": str(ports[management_of("rabbitmq")]),
    }


def _free_ports() -> dict[str, int]:
    """Ports that stay a node's own when it is started again; Docker would choose new ones."""
    with ExitStack() as stack:
        listening = {name: stack.enter_context(socket.socket()) for name in (*NODES, *map(management_of, NODES))}
        for each in listening.values():
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in listening.items()}
