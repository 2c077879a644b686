"""A folder broker beside RabbitMQ: each probe sees the same, or a line of docs/brokers.md says what differs."""

import re
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from kombu import Connection

from ami.transports import register
from tests.support.brokers import BROKERS, new_broker
from tests.support.transports.amqp_probes import PROBES, Session

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/brokers.md"


#: A folder in memory: what a power failure leaves is tested elsewhere.
MEMORY = Path("/dev/shm")

#: How long a probe waits whose deviation is documented; more than RabbitMQ needs.
IN_VAIN_SECONDS = 1.0


@cache
def documented() -> set[str]:
    """Return the probes in the table of deviations."""
    _, _, section = DOCUMENT.read_text().partition("## How it differs from RabbitMQ\n")
    return set(re.findall(r"^\| `([a-z0-9-]+)` \|", section.partition("\n## ")[0], re.MULTILINE))


@pytest.fixture(scope="module")
def connections() -> Iterator[list[Connection]]:
    """A connection to each broker, with publisher confirms."""
    register()
    rabbitmq, folder = BROKERS
    with (
        new_broker(rabbitmq, f"probes-{uuid.uuid4().hex[:8]}", Path()) as one,
        TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place,
        new_broker(folder, "", Path(place)) as other,
        Connection(one, transport_options={"confirm_publish": True}) as first,
        Connection(other) as second,
    ):
        yield [first, second]


def seen(name: str, connection: Connection) -> Any:
    """Return what a probe sees, in terms that two brokers share."""
    # What a documented deviation waits for does not come.
    session = Session(connection, name, *((IN_VAIN_SECONDS,) if name in documented() else ()))
    try:
        return repr(PROBES[name](session)).replace(f"{session.prefix}.", "")
    finally:
        session.close()


@pytest.mark.parametrize("name", sorted(PROBES))
def test_broker_answers_as_rabbitmq_or_as_documented(name: str, connections: list[Connection]):
    rabbitmq, folder = (seen(name, connection) for connection in connections)
    if name in documented():
        assert folder != rabbitmq, f"{name} no longer deviates: remove its line from {DOCUMENT.name}"
    else:
        assert folder == rabbitmq


def test_every_documented_deviation_is_probed():
    assert documented() <= set(PROBES)
    assert len(PROBES) >= 70
