"""One hostile message, and what a proper one looks like."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

#: The task that most of them name: it takes one argument, and does nothing.
TASK = "tests.support.worker_tasks.basic.succeed"

#: A file that exists when the body of a message was executed as code.
EXECUTED = Path(tempfile.gettempdir()) / "antenna-hostile-message-executed"

#: What may become of a message: buried before it starts, with a reason; or it may start, and succeed or fail.
BURIED, MAY_START = "buried", "may start"

JSON = MappingProxyType({"content_type": "application/json", "content_encoding": "utf-8"})

#: Stands for a header that is left out.
MISSING = object()


@dataclass(frozen=True)
class Hostile:
    """One message.

    ``content`` is its body, or makes it when it is first read. ``properties`` are AMQP's basic properties, content type
    and encoding among them. ``raw_headers`` replaces the headers by the bytes of an AMQP table, for what no library
    writes; such a case exists on RabbitMQ alone.
    """

    name: str
    content: bytes | Callable[[], bytes]
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=lambda: JSON)
    outcome: str = BURIED
    raw_headers: bytes | None = None

    @property
    def body(self) -> bytes:
        """The bytes that are published."""
        return self.content() if callable(self.content) else self.content

    @property
    def needs_amqp(self) -> bool:
        """Whether only an AMQP broker can carry it."""
        return self.raw_headers is not None


def id_of(name: str) -> str:
    """Return the id of the task that the case of this name carries, unless its fault is the id."""
    return f"hostile-{name.replace(' ', '-')}"


def headers(name: str, **changes: Any) -> dict[str, Any]:
    """Return a proper message's headers, with changes."""
    proper = {
        "lang": "py",
        "task": TASK,
        "id": id_of(name),
        "root_id": id_of(name),
        "parent_id": None,
        "group": None,
        "shadow": None,
        "eta": None,
        "expires": None,
        "retries": 0,
        "timelimit": [None, None],
        "argsrepr": "('hostile',)",
        "kwargsrepr": "{}",
        "origin": "hostile",
        "ignore_result": True,
    }
    return {name: value for name, value in {**proper, **changes}.items() if value is not MISSING}
