"""What goes wrong around containers: a process is killed, a network is cut, a disk is full."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import docker, inspect, run

#: More than any disk has; and the deployment's own limit, compose/rabbitmq/antenna.conf.
TOO_MUCH, AS_DEPLOYED = "100000GB", "1GB"


def kill(container: str) -> None:
    """SIGKILL the container's first process, and with it all others, without the engine being asked: a crash."""
    os.kill(inspect(container)["State"]["Pid"], signal.SIGKILL)


def restarts(container: str) -> int:
    """How often the engine started it again by itself."""
    return int(inspect(container)["RestartCount"])


@contextmanager
def silence(container: str) -> Iterator[None]:
    """Drop every packet to and from a container, as a firewall or a pulled cable does: nobody is told."""
    pid = str(inspect(container)["State"]["Pid"])
    rules = [(chain, way) for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o"))]

    def iptables(action: str) -> None:
        for chain, way in rules:
            run(["nsenter", "-t", pid, "-n", "iptables", "-w", action, chain, "!", way, "lo", "-j", "DROP"])

    iptables("-A")
    try:
        yield
    finally:
        iptables("-D")


@contextmanager
def unplugged(deployment: Deployment, service: str) -> Iterator[None]:
    """Take a container off its network, and put it back under the name of its service."""
    container = deployment.container(service)
    ((network, found),) = _networks(deployment, service).items()
    aliases = [part for alias in found["Aliases"] for part in ("--alias", alias)]
    docker("network", "disconnect", network, container)
    try:
        yield
    finally:
        docker("network", "connect", *aliases, network, container)


@contextmanager
def heartbeat(deployment: Deployment, seconds: int, services: Sequence[str]) -> Iterator[None]:
    """Let RabbitMQ ask for a heartbeat at least so often, and these workers connect anew, so that they know of it.

    What connects beside them, or later, is asked as before: a shorter one is missed sooner on a busy machine.
    """

    def ask(every: int) -> int:
        """Set the seconds and return those of before, in one call: each starts an Erlang machine."""
        code = f"V = application:get_env(rabbit, heartbeat, 60), application:set_env(rabbit, heartbeat, {every}), V."
        return int(deployment.execute("rabbitmq", "rabbitmqctl", "--quiet", "eval", code))

    before = ask(seconds)
    try:
        _disconnect(deployment, services)
        yield
    finally:
        ask(before)
        _disconnect(deployment, services)


def _disconnect(deployment: Deployment, services: Sequence[str]) -> None:
    """Let RabbitMQ close every connection of these services."""
    addresses = {found["IPAddress"] for name in services for found in _networks(deployment, name).values()}
    url = f"{deployment.management_url}/api/connections"
    for connection in httpx.get(url, timeout=60).raise_for_status().json():
        if connection["peer_host"] in addresses:
            httpx.delete(f"{url}/{quote(connection['name'], safe='')}", timeout=60)


def _networks(deployment: Deployment, service: str) -> dict[str, Any]:
    return dict(inspect(deployment.container(service))["NetworkSettings"]["Networks"])


@contextmanager
def disk_alarm(deployment: Deployment) -> Iterator[None]:
    """Let RabbitMQ find too little disk: it demands more than there is, which is all that its alarm looks at."""

    def limit(size: str) -> None:
        deployment.execute("rabbitmq", "rabbitmqctl", "--quiet", "set_disk_free_limit", size)

    limit(TOO_MUCH)
    try:
        yield
    finally:
        limit(AS_DEPLOYED)


def changed(deployment: Deployment, service: str, **variables: str) -> Deployment:
    """Run one service with other variables from now on; `up` of the deployment itself brings back those of before."""
    folder = deployment.folder / f"changed-{service}"
    other = replace(deployment, folder=folder, variables=deployment.variables | variables)
    other.compose("up", "--detach", "--no-deps", service)
    return other
