"""Declared exchanges, queues and bindings, and which queues a routing key reaches."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from amqp.exceptions import PreconditionFailed

#: The exchange types that are supported; RabbitMQ's headers exchange is not.
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
        """Whether its messages need not survive a power failure: remote control, replies, events."""
        return not self.durable or self.auto_delete or self.exclusive

    @property
    def dead_letters(self) -> tuple[str, str | None] | None:
        """The exchange and routing key of its dead letters; a key of None is the message's own."""
        exchange = self.arguments.get("x-dead-letter-exchange")
        return None if exchange is None else (exchange, self.arguments.get("x-dead-letter-routing-key"))

    @property
    def delivery_limit(self) -> int | None:
        """How many returned deliveries a message may have before it is dead-lettered."""
        return self.arguments.get("x-delivery-limit")

    @property
    def message_ttl_seconds(self) -> float | None:
        milliseconds = self.arguments.get("x-message-ttl")
        return None if milliseconds is None else milliseconds / 1000


@dataclass(frozen=True)
class Declarations:
    """Everything that is declared at one moment, immutable."""

    exchanges: Mapping[str, ExchangeRecord] = field(default_factory=dict)
    queues: Mapping[str, QueueRecord] = field(default_factory=dict)
    bindings: frozenset[Binding] = frozenset()

    def dump(self) -> bytes:
        whole = {
            "exchanges": {name: asdict(record) for name, record in self.exchanges.items()},
            "queues": {name: asdict(record) for name, record in self.queues.items()},
            "bindings": sorted(self.bindings),
        }
        return json.dumps(whole, separators=(",", ":")).encode()

    @classmethod
    def load(cls, content: bytes) -> "Declarations":
        whole = json.loads(content)
        return cls(
            {name: ExchangeRecord(**record) for name, record in whole["exchanges"].items()},
            {name: QueueRecord(**record) for name, record in whole["queues"].items()},
            frozenset((exchange, queue, key) for exchange, queue, key in whole["bindings"]),
        )

    # Changes.

    def with_exchange(self, name: str, record: ExchangeRecord) -> "Declarations":
        """Raises amqp's PreconditionFailed where it exists with other properties."""
        if record.type not in TYPES:
            raise PreconditionFailed(f"exchange '{name}': no type '{record.type}' here; there are {', '.join(TYPES)}")
        old = self.exchanges.get(name)
        if old is not None:
            _refuse_difference("exchange", name, {"type": (old.type, record.type)})
            return self
        return Declarations({**self.exchanges, name: record}, self.queues, self.bindings)

    def with_queue(self, name: str, record: QueueRecord) -> "Declarations":
        """Raises amqp's PreconditionFailed where it exists with other properties."""
        old = self.queues.get(name)
        if old is not None:
            _refuse_difference(
                "queue",
                name,
                {
                    "durable": (old.durable, record.durable),
                    "arguments": (dict(old.arguments), dict(record.arguments)),
                },
            )
            if old.owner == record.owner or record.owner is None:
                return self
        return Declarations(self.exchanges, {**self.queues, name: record}, self.bindings)

    def with_binding(self, exchange: str, queue: str, key: str) -> "Declarations":
        if (exchange, queue, key) in self.bindings:
            return self
        return Declarations(self.exchanges, self.queues, self.bindings | {(exchange, queue, key)})

    def without_binding(self, exchange: str, queue: str, key: str) -> "Declarations":
        return Declarations(self.exchanges, self.queues, self.bindings - {(exchange, queue, key)})

    def without_queue(self, name: str) -> "Declarations":
        queues = {other: record for other, record in self.queues.items() if other != name}
        return Declarations(self.exchanges, queues, frozenset(each for each in self.bindings if each[1] != name))

    def without_exchange(self, name: str) -> "Declarations":
        exchanges = {other: record for other, record in self.exchanges.items() if other != name}
        return Declarations(exchanges, self.queues, frozenset(each for each in self.bindings if each[0] != name))

    # Routing.

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the queues of a message, each once; of the alternate exchange when no binding matches."""
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


def _refuse_difference(kind: str, name: str, fields: Mapping[str, tuple[Any, Any]]) -> None:
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
