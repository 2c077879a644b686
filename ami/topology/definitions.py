"""Renders RabbitMQ's definitions: loaded at broker start, equal to what ``queues declare`` declares."""

import base64
import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from ami.topology import broker
from ami.topology.errors import TopologyError
from ami.topology.table import FALLBACK
from ami.topology.topology import Topology

#: Definitions for the oldest version load in every later one. An unknown policy key stops the import: the broker then
#: starts without queues.
OLDEST_RABBITMQ = (3, 10)

HASHING_ALGORITHM = "rabbit_password_hashing_sha256"
SALT_BYTES = 4


@dataclass(frozen=True)
class Account:
    """RabbitMQ's only user, an administrator, and its virtual host."""

    user: str
    password: str = field(repr=False)
    vhost: str

    def password_hash(self, salt: bytes) -> str:
        """Return what RabbitMQ stores for the password: Base64 of the salt and of SHA-256 over salt and password.

        Source: https://www.rabbitmq.com/docs/passwords#computing-password-hash.
        """
        digest = hashlib.sha256(salt + self.password.encode()).digest()
        return base64.b64encode(salt + digest).decode("ascii")


def parse(version: str) -> tuple[int, ...]:
    """Return RabbitMQ's major and minor version, for example ``(3, 13)`` for ``3.13.7``.

    Raises:
        TopologyError: not a version, or older than `OLDEST_RABBITMQ`.
    """
    parts = version.split(".")
    found = tuple(int(part) for part in parts[:2]) if all(part.isdecimal() for part in parts) else ()
    if len(found) < 2 or found < OLDEST_RABBITMQ:
        raise TopologyError(f"'{version}' is not a RabbitMQ version from 3.10 on; write it like 3.13.")
    return found


def render(
    topology: Topology, account: Account, version: tuple[int, ...] = OLDEST_RABBITMQ, salt: bytes | None = None
) -> dict[str, Any]:
    """Return the definitions for a RabbitMQ of ``version`` or newer; deterministic except for the salt.

    Loading them deletes nothing and replaces the user's password. With routing ``single`` the split queues are left
    out, so that a broker restart does not restore bindings that a rollback removed.
    """
    record = Record(account.vhost)
    _declare(topology, record)
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    user, vhost = account.user, account.vhost
    return {
        "users": [
            {
                "name": user,
                "password_hash": account.password_hash(salt),
                "hashing_algorithm": HASHING_ALGORITHM,
                "tags": "administrator",
            }
        ],
        "vhosts": [{"name": vhost}],
        "permissions": [{"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}],
        "policies": [{"vhost": vhost, **policy} for policy in broker.policies(topology, version)],
        "exchanges": list(record.exchanges.values()),
        "queues": list(record.queues.values()),
        "bindings": record.bindings,
    }


def _declare(topology: Topology, record: "Record") -> None:
    """Declare on ``record`` what `ami.celery.declaration` declares on a broker."""
    broker.EXCHANGE(record).declare()
    for queue in (broker.unrouted_queue(), *broker.dead_letter_queues(topology)):
        queue(record).declare()
    declare_native_delayed_delivery_exchanges_and_queues(record, broker.QUORUM["x-queue-type"])
    for queue in _routed(topology):
        queue(record).declare()
        bind_queue_to_native_delayed_delivery_exchange(record, queue)


def _routed(topology: Topology) -> Iterator[Any]:
    for queue in broker.task_queues(topology):
        if topology.routing == "split" or queue.name == FALLBACK:
            yield queue


@dataclass(frozen=True)
class Record:
    """A fake kombu connection and channel that records declarations as definitions."""

    vhost: str
    exchanges: dict[str, dict[str, Any]] = field(default_factory=dict)
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    bindings: list[dict[str, Any]] = field(default_factory=list)

    def channel(self) -> "Record":
        return self

    def prepare_queue_arguments(self, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Return the arguments as kombu's AMQP channel sends them."""
        return dict(to_rabbitmq_queue_arguments(arguments, **options))

    def exchange_declare(
        self,
        exchange: str,
        type: str,  # noqa: A002 - kombu's name
        durable: bool,
        auto_delete: bool,
        arguments: Any,
        **_: Any,
    ) -> None:
        self.exchanges[exchange] = {
            "name": exchange,
            "vhost": self.vhost,
            "type": type,
            "durable": durable,
            "auto_delete": auto_delete,
            "internal": False,
            "arguments": arguments or {},
        }

    def queue_declare(self, queue: str, durable: bool, auto_delete: bool, arguments: Any, **_: Any) -> None:
        self.queues[queue] = {
            "name": queue,
            "vhost": self.vhost,
            "durable": durable,
            "auto_delete": auto_delete,
            "arguments": arguments or {},
        }

    def exchange_bind(self, destination: str, source: str, routing_key: str, arguments: Any, **_: Any) -> None:
        self._bind(source, destination, "exchange", routing_key, arguments)

    def queue_bind(self, queue: str, exchange: str, routing_key: str, arguments: Any, **_: Any) -> None:
        self._bind(exchange, queue, "queue", routing_key, arguments)

    def _bind(self, source: str, destination: str, kind: str, routing_key: str, arguments: Any) -> None:
        binding = {
            "source": source,
            "vhost": self.vhost,
            "destination": destination,
            "destination_type": kind,
            "routing_key": routing_key,
            "arguments": arguments or {},
        }
        if binding not in self.bindings:
            self.bindings.append(binding)
