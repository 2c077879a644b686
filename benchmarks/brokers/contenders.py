"""The compared brokers, with early and late acknowledgement."""

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from ami.topology.broker import DELIVERY_LIMIT, QUORUM
from benchmarks.brokers.application import Settings
from tests.support.place import management

#: The arguments of every deployed queue, without dead-lettering.
DEPLOYED = {**QUORUM, "x-delivery-limit": DELIVERY_LIMIT, "x-overflow": "reject-publish"}


@dataclass(frozen=True)
class Contender:
    """A broker with one of the settings; ``reference`` names the contender it is compared with, round by round.

    ``target``: the required ratio of its tasks per second to the reference's, at every depth; ``publish_target``: that
    of its publishes per second.
    """

    name: str
    url: Callable[[Path], str]
    depths: tuple[int, ...]
    is_late: bool = False
    options: Callable[[Path], dict[str, Any]] = field(default=lambda _: {})
    arguments: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None
    target: float | None = None
    publish_target: float | None = None

    @contextmanager
    def place(self) -> Iterator[Settings]:
        """Make a broker, or a queue, for exclusive use."""
        with tempfile.TemporaryDirectory(prefix="brokers-benchmark-") as name:
            folder = Path(name)
            queue = f"benchmark-{uuid.uuid4().hex[:8]}"
            yield Settings(self.url(folder), queue, name, self.is_late, self.options(folder), self.arguments)

    @property
    def is_beside(self) -> bool:
        """Whether it is neither our transport nor a reference."""
        return self.reference is not None and not self.is_folder

    @property
    def is_folder(self) -> bool:
        """Whether it is our own transport on a folder."""
        return self.name.startswith("folder")


CLASSIC, QUORUM_AS_DEPLOYED = "RabbitMQ classic, early ack", "RabbitMQ quorum, late ack"
DEPTHS = (100, 1_000, 10_000)


def contenders(virtual_host: str) -> list[Contender]:
    """Return all contenders, each reference before the contenders compared with it."""
    redis = os.environ["REDIS_URL"]
    confirmed = {"confirm_publish": True}
    return [
        Contender(CLASSIC, lambda _: virtual_host, DEPTHS),
        Contender("folder, early ack", _folder, (*DEPTHS, 100_000), reference=CLASSIC, target=0.5),
        Contender(QUORUM_AS_DEPLOYED, lambda _: virtual_host, DEPTHS, True, lambda _: confirmed, DEPLOYED),
        Contender(
            "folder, late ack", _folder, (*DEPTHS, 100_000), True, reference=QUORUM_AS_DEPLOYED, publish_target=1.5
        ),
        Contender("Redis, early ack", lambda _: redis, DEPTHS, reference=CLASSIC),
        Contender("kombu's files, early ack", lambda _: "filesystem://", DEPTHS, False, _files, reference=CLASSIC),
    ]


def _folder(folder: Path) -> str:
    return f"objectstore+{(folder / 'broker').as_uri()}"


def _files(folder: Path) -> dict[str, Any]:
    for name in ("messages", "control"):
        (folder / name).mkdir(exist_ok=True)
    messages = str(folder / "messages")
    return {"data_folder_in": messages, "data_folder_out": messages, "control_folder": str(folder / "control")}


@contextmanager
def virtual_host() -> Iterator[str]:
    """Make a virtual host for this benchmark and yield its URL; afterwards remove it with its queues."""
    parts = urlsplit(os.environ["CELERY_BROKER_URL"])
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    management("PUT", f"vhosts/{name}", {})
    try:
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        management("PUT", f"permissions/{name}/{quote(parts.username or '', safe='')}", rights)
        yield urlunsplit(parts._replace(path=f"/{name}"))
    finally:
        management("DELETE", f"vhosts/{name}")
