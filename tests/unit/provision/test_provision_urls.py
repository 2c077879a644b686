"""Probes of closed and silent ports; free ports."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from provision import services, urls
from provision.kind import Unavailable
from provision.ports import FIRST, LAST, free_ports

SCHEMES = {"rabbitmq": "amqp", "redis": "redis", "postgres": "postgres", "nats": "nats"}


@pytest.fixture
def mute() -> Iterator[int]:
    """A port that accepts a connection and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("name", SCHEMES)
def test_closed_port_is_reported_as_refused(name: str) -> None:
    [port] = free_ports(1)
    with pytest.raises(Unavailable, match="connection refused"):
        services.KINDS[name].probe(f"{SCHEMES[name]}://u:p@127.0.0.1:{port}/x", 3.0)


@pytest.mark.parametrize("name", SCHEMES)
def test_silent_port_times_out_within_the_deadline(name: str, mute: int) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no answer within"):
        services.KINDS[name].probe(f"{SCHEMES[name]}://u:p@127.0.0.1:{mute}/0", 0.3)
    # PostgreSQL's library waits at least two seconds; a busy machine adds some.
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("name", ["rabbitmq", "postgres"])
def test_another_scheme_is_refused(name: str) -> None:
    with pytest.raises(Unavailable, match="not a"):
        services.KINDS[name].probe("http://127.0.0.1:1", 1.0)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://u:secret@broker:5671/vhost", "broker:5671"),
        ("redis://:secret@cache", "cache"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("amqp://u:secret@broker:port//", "an unreadable URL"),
    ],
)
def test_where_omits_the_login(url: str, shown: str) -> None:
    assert urls.where(url) == shown


def test_ports_are_free_different_and_below_the_ephemeral_range() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(FIRST <= port < LAST for port in found)
    with socket.create_server(("127.0.0.1", found[0])):
        pass
