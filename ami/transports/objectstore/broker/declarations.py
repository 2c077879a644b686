"""Declared exchanges, queues and bindings, and which queues a routing key reaches."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from amqp.exceptions import PreconditionFailed

from ami.transports.objectstore.broker.queue_arguments import MAX_PRIORITY, REJECT_PUBLISH
from ami.transports.objectstore.queue.limits import LengthLimit

#: The exchange types that are supported; RabbitMQ's headers exchange is not.
TYPES = ("direct", "topic", "fanout")

#: The argument that names the exchange of messages that no binding matches.
ALTERNATE = "alternate-exchange"

Binding = tuple[str, str, str]


@dataclass(frozen=True)
class ExchangeRecord:
    """A declared exchange."""

    type: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


#: Every AMQP broker has these.
STANDARD_EXCHANGES = {f"amq.{name}": ExchangeRecord(name) for name in TYPES}


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
    def limit(self) -> LengthLimit:
        """How many messages may wait."""
        rejects = self.arguments.get("x-overflow") == REJECT_PUBLISH
        return LengthLimit(self.arguments.get("x-max-length"), rejects)

    @property
    def max_priority(self) -> int:
        """The highest priority; a message above it has this one. A queue that names none has all priorities."""
        return int(self.arguments.get("x-max-priority", MAX_PRIORITY))

    @property
    def ends_with_owner(self) -> bool:
        return self.auto_delete or self.exclusive

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
        old = self.exchange(name)
        if old is not None:
            alternates = old.arguments.get(ALTERNATE), record.arguments.get(ALTERNATE)
            fields = {"type": (old.type, record.type), ALTERNATE: alternates}
            for field_name in ("durable", "auto_delete"):
                fields[field_name] = getattr(old, field_name), getattr(record, field_name)
            _refuse_difference("exchange", name, fields)
            return self
        return Declarations({**self.exchanges, name: record}, self.queues, self.bindings)

    def with_queue(self, name: str, record: QueueRecord, *, replaces: bool = False) -> "Declarations":
        """Raises amqp's PreconditionFailed where it exists with other properties, unless the record ``replaces`` it."""
        old = self.queues.get(name)
        if old is not None and not replaces:
            _refuse_difference(
                "queue",
                name,
                {
                    "durable": (old.durable, record.durable),
                    "auto_delete": (old.auto_delete, record.auto_delete),
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
        return self._with_bindings(self.queues, self.bindings - {(exchange, queue, key)})

    def without_queue(self, name: str) -> "Declarations":
        queues = {other: record for other, record in self.queues.items() if other != name}
        return self._with_bindings(queues, frozenset(each for each in self.bindings if each[1] != name))

    def _with_bindings(self, queues: Mapping[str, QueueRecord], bindings: frozenset[Binding]) -> "Declarations":
        """Return these with fewer bindings; an auto-delete exchange ends with its last one."""
        ended = {each[0] for each in self.bindings} - {each[0] for each in bindings}
        exchanges = {
            name: record for name, record in self.exchanges.items() if name not in ended or not record.auto_delete
        }
        return Declarations(exchanges, queues, bindings)

    def without_exchange(self, name: str) -> "Declarations":
        exchanges = {other: record for other, record in self.exchanges.items() if other != name}
        return Declarations(exchanges, self.queues, frozenset(each for each in self.bindings if each[0] != name))

    def exchange(self, name: str) -> ExchangeRecord | None:
        """Return a declared exchange, or one that every AMQP broker has."""
        return self.exchanges.get(name) or STANDARD_EXCHANGES.get(name)

    # Routing.

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the queues of a message, each once; of the alternate exchange when no binding matches."""
        seen: set[str] = set()
        while exchange not in seen:
            seen.add(exchange)
            if queues := sorted(set(self._matching(exchange, key))):
                return queues
            record = self.exchange(exchange)
            alternate = record.arguments.get(ALTERNATE) if record else None
            if alternate is None:
                break
            exchange = alternate
        return []

    def _matching(self, exchange: str, key: str) -> Iterator[str]:
        if not exchange:
            if key in self.queues:
                yield key
            return
        record = self.exchange(exchange)
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
    return _topic(_words(pattern), _words(key))


def _words(key: str) -> tuple[str, ...]:
    """An empty key has no words, as on RabbitMQ; ``a..b`` has an empty one."""
    return tuple(key.split(".")) if key else ()


def _topic(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Match as AMQP does: ``*`` is one word, ``#`` any number of words, none among them."""
    reached = {0}
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
    return len(words) in reached
