"""Connections that idle behind a firewall that forgets them: kept alive they go on, without keep-alive they do not."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support.firewall import Network, Relay, forgetful_network
from tests.support.place import ROOT, Place, until
from tests.support.soak import soak

#: An hour with the product's own keep-alive, and one that lets the same be seen in less time.
IDLE_SECONDS = soak(6, 3600)
#: Less than the two minutes after which NATS asks its clients, or it would keep its connections alive by itself.
FIREWALL_SECONDS = soak(3, 100)
KEEPALIVE_SECONDS = soak(1, 60)
#: Longer than any firewall here remembers a connection.
NO_KEEPALIVE_SECONDS = 3600

VARIABLES = {
    "broker": "CELERY_BROKER_URL",
    "database": "DATABASE_URL",
    "cache": "REDIS_URL",
    "results": "CELERY_RESULT_BACKEND",
    "nats": "NATS_URL",
}


@dataclass
class Client:
    """A process behind the firewall with a relay of its own to each service."""

    relays: dict[str, Relay]
    popen: subprocess.Popen[str]

    def use(self) -> dict[str, str]:
        """Use each connection once; return ``ok`` or the class of the error, and what was opened anew for it."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        before = self.opened
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()
        outcomes: dict[str, str] = json.loads(self.popen.stdout.readline())
        opened = self.opened
        return {
            name: "ok, reconnected" if said == "ok" and opened[name] > before[name] else said
            for name, said in outcomes.items()
        }

    @property
    def opened(self) -> dict[str, int]:
        return {name: relay.opened for name, relay in self.relays.items()}


def behind(network: Network, place: Place, keepalive_seconds: int) -> tuple[dict[str, Relay], dict[str, str]]:
    """Return a relay to each service, and the environment that leads a process there."""
    environment = {**place.environment, "CELERY_RESULT_BACKEND": os.environ["REDIS_URL"]}
    relays = {name: network.relay(environment[variable]) for name, variable in VARIABLES.items()}
    urls = {VARIABLES[name]: relay.url(environment[VARIABLES[name]]) for name, relay in relays.items()}
    return relays, {**urls, "ANTENNA_KEEPALIVE_SECONDS": str(keepalive_seconds)}


@contextmanager
def client(network: Network, place: Place, keepalive_seconds: int) -> Iterator[Client]:
    relays, environment = behind(network, place, keepalive_seconds)
    argv = [*network.enter, sys.executable, "-m", "tests.support.idle_client"]
    popen = subprocess.Popen(
        argv, cwd=ROOT, env=place.environment | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Client(relays, popen)
    finally:
        popen.kill()
        popen.communicate()


@pytest.mark.timeout(IDLE_SECONDS + 300)
def test_incident_5_idle_connections_survive_a_firewall_that_forgets_them(place: Place):
    place.queues("declare")
    with (
        forgetful_network(FIREWALL_SECONDS) as network,
        client(network, place, KEEPALIVE_SECONDS) as kept,
        client(network, place, NO_KEEPALIVE_SECONDS) as forgotten,
    ):
        relays, environment = behind(network, place, KEEPALIVE_SECONDS)
        worker = place.worker("antenna", inside=network.enter, **environment)
        first = {name: "ok, reconnected" for name in VARIABLES}
        assert (kept.use(), forgotten.use()) == (first, first)
        until(lambda: len(place.ran("succeed")) == 2, what="the worker runs what both published")
        opened = relays["broker"].opened
        idle_until = time.monotonic() + IDLE_SECONDS
        until(lambda: time.monotonic() >= idle_until, IDLE_SECONDS + 60, "the connections have been idle")
        assert kept.use() == dict.fromkeys(VARIABLES, "ok")
        until(lambda: len(place.ran("succeed")) == 3, 10, "the worker's connection has survived, too")
        assert relays["broker"].opened == opened, worker.text
        outcomes = forgotten.use()
        print(f"without keep-alive: {outcomes}")
    assert "ok" not in outcomes.values(), "without keep-alive each would be dropped, or this test shows nothing"
