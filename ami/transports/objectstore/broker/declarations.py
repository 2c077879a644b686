"""What is declared: exchanges, queues and bindings, and which queues a routing key reaches."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from amqp.exceptions import PreconditionFailed

#: The exchange types there are; RabbitMQ's headers exchange is not among them.
TYPES = ("direct", "topic", "fanout")

Binding = tuple[str, str, str]


@dataclass(frozen=True)
class ExchangeRecord:
    """A declared exchange."""

    type: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class QueueRecord:
    """A declared queue. ``owner`` is the connection that an exclusive or auto-delete queue belongs to."""

    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    owner: str | None = None

    @property
    def is_transient(self) -> bool:
        """Whether what it holds need not survive a power failure: remote control, replies, events."""
        return not self.durable or self.auto_delete or self.exclusive

    @property
    def dead_letters(self) -> tuple[str, str | None] | None:
        """The exchange and routing key for what is given up; a key of None is the message's own."""
        exchange = self.arguments.get("x-dead-letter-exchange")
        return None if exchange is None else (exchange, self.arguments.get("x-dead-letter-routing-key"))

    @property
    def delivery_limit(self) -> int | None:
        """After how many deliveries that came back a message is given up."""
        return self.arguments.get("x-delivery-limit")

    @property
    def message_ttl_seconds(self) -> float | None:
        """How long a message may wait."""
        milliseconds = self.arguments.get("x-message-ttl")
        return None if milliseconds is None else milliseconds / 1000


@dataclass(frozen=True)
class Layout:
    """Everything that is declared at one moment; a change makes a new one."""

    exchanges: Mapping[str, ExchangeRecord] = field(default_factory=dict)
    queues: Mapping[str, QueueRecord] = field(default_factory=dict)
    bindings: frozenset[Binding] = frozenset()

    def dump(self) -> bytes:
        """Return it as JSON."""
        whole = {
            "exchanges": {name: asdict(record) for name, record in self.exchanges.items()},
            "queues": {name: asdict(record) for name, record in self.queues.items()},
            "bindings": sorted(self.bindings),
        }
        return json.dumps(whole, separators=(",", ":")).encode()

    @classmethod
    def load(cls, content: bytes) -> "Layout":
        """Return what `dump` wrote."""
        whole = json.loads(content)
        return cls(
            {name: ExchangeRecord(**record) for name, record in whole["exchanges"].items()},
            {name: QueueRecord(**record) for name, record in whole["queues"].items()},
            frozenset((exchange, queue, key) for exchange, queue, key in whole["bindings"]),
        )

    # Changes.

    def with_exchange(self, name: str, record: ExchangeRecord) -> "Layout":
        """Declare an exchange. Raises amqp's PreconditionFailed when it exists otherwise."""
        if record.type not in TYPES:
            raise PreconditionFailed(f"exchange '{name}': no type '{record.type}' here; there are {', '.join(TYPES)}")
        old = self.exchanges.get(name)
        if old is not None:
            _refuse_other("exchange", name, {"type": (old.type, record.type)})
            return self
        return Layout({**self.exchanges, name: record}, self.queues, self.bindings)

    def with_queue(self, name: str, record: QueueRecord) -> "Layout":
        """Declare a queue. Raises amqp's PreconditionFailed when it exists otherwise."""
        old = self.queues.get(name)
        if old is not None:
            _refuse_other(
                "queue",
                name,
                {
                    "durable": (old.durable, record.durable),
                    "arguments": (dict(old.arguments), dict(record.arguments)),
                },
            )
            if old.owner == record.owner or record.owner is None:
                return self
        return Layout(self.exchanges, {**self.queues, name: record}, self.bindings)

    def with_binding(self, exchange: str, queue: str, key: str) -> "Layout":
        """Bind a queue."""
        if (exchange, queue, key) in self.bindings:
            return self
        return Layout(self.exchanges, self.queues, self.bindings | {(exchange, queue, key)})

    def without_binding(self, exchange: str, queue: str, key: str) -> "Layout":
        """Unbind a queue; one that is not bound is no error."""
        return Layout(self.exchanges, self.queues, self.bindings - {(exchange, queue, key)})

    def without_queue(self, name: str) -> "Layout":
        """Delete a queue with its bindings."""
        queues = {other: record for other, record in self.queues.items() if other != name}
        return Layout(self.exchanges, queues, frozenset(binding for binding in self.bindings if binding[1] != name))

    def without_exchange(self, name: str) -> "Layout":
        """Delete an exchange with its bindings."""
        exchanges = {other: record for other, record in self.exchanges.items() if other != name}
        return Layout(exchanges, self.queues, frozenset(binding for binding in self.bindings if binding[0] != name))

    # Routing.

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the queues a message goes to, by the alternate exchange when no binding matches; each one once."""
        seen: set[str] = set()
        while exchange not in seen:
            seen.add(exchange)
            if queues := sorted(set(self._matching(exchange, key))):
                return queues
            record = self.exchanges.get(exchange)
            alternate = record.arguments.get("alternate-exchange") if record else None
            if alternate is None:
                break
            exchange = alternate
        return []

    def _matching(self, exchange: str, key: str) -> Iterator[str]:
        if not exchange:
            if key in self.queues:
                yield key
            return
        record = self.exchanges.get(exchange)
        if record is None:
            return
        for source, queue, pattern in self.bindings:
            if source == exchange and queue in self.queues and _matches(record.type, pattern, key):
                yield queue


def _refuse_other(kind: str, name: str, fields: Mapping[str, tuple[Any, Any]]) -> None:
    for field_name, (old, new) in fields.items():
        if old != new:
            raise PreconditionFailed(f"{kind} '{name}' exists with {field_name} {old!r}; {new!r} was asked for")


@lru_cache(4096)
def _matches(kind: str, pattern: str, key: str) -> bool:
    if kind == "fanout":
        return True
    if kind == "direct" or pattern == key:
        return pattern == key
    return _topic(tuple(pattern.split(".")), tuple(key.split(".")))


def _topic(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Match as AMQP does: ``*`` is one word, ``#`` any number of words, none among them."""
    reached = {0}
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
    return len(words) in reached
