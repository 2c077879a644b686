"""A publisher in one of the deployment's containers, and what became of everything that was confirmed to it."""

import json
import subprocess
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.containers.deployment import Deployment
from tests.support.containers.effects import Effect, Effects
from tests.support.containers.engine import until

MANY = 1_000_000


class Publisher:
    """A process in a container that publishes every load from there: a start of Django costs two processor seconds."""

    def __init__(self, container: str, log: Path) -> None:
        self.log = log
        command = ["docker", "exec", "--interactive", container, "python", "-m", "smoke_publisher"]
        with log.open("w") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)

    def order(self, **order: Any) -> None:
        """Let it begin a load, or stop one."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def said(self, batch: str) -> list[dict[str, Any]]:
        """What it printed of one load so far, a line for each key, and one when it is over."""
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n") and batch in line]

    @property
    def ended(self) -> bool:
        """Whether it is gone: a container that was killed takes it along, and may be started again."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Let go of it; the process itself ends with its container."""
        self._process.kill()
        self._process.communicate()


#: By container.
PUBLISHERS: dict[str, Publisher] = {}


def publisher_in(deployment: Deployment, service: str) -> Publisher:
    """Return the publisher in the service's container; the first load there starts it."""
    container = deployment.container(service)
    if container not in PUBLISHERS or PUBLISHERS[container].ended:
        PUBLISHERS[container] = Publisher(container, deployment.folder / f"loads-{container[:12]}.jsonl")
    return PUBLISHERS[container]


def end_publishers() -> None:
    """End them all, before their containers are removed."""
    while PUBLISHERS:
        PUBLISHERS.popitem()[1].end()


@dataclass
class Load:
    """Publishes ``task`` to ``queues`` in turns, each confirmed, from inside the container of ``service``.

    ``pace`` is the seconds between two, ``count`` the most of them, ``numbers`` go to the task. As a context it starts
    with the block and stops with it.
    """

    deployment: Deployment
    queues: tuple[str, ...]
    pace: float = 0.05
    count: int = MANY
    task: str = "smoke.effect"
    numbers: dict[str, float] = field(default_factory=dict)
    service: str = "web"
    batch: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def __enter__(self) -> Self:
        self._publisher = publisher_in(self.deployment, self.service)
        numbers = {"count": self.count, "pace": self.pace, "kwargs": self.numbers}
        self._publisher.order(begin=self.batch, task=self.task, queues=self.queues, **numbers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Let it send no more, and wait for what it is about to send."""
        self._publisher.order(stop=self.batch)
        until(lambda: self._over, 60, "the publisher ends")
        assert self._over[0]["status"] == 0, self._publisher.log.read_text()[-3000:]

    @property
    def _over(self) -> list[dict[str, Any]]:
        return [one for one in self._publisher.said(self.batch) if "over" in one]

    def until_sent(self, count: int, seconds: float = 60) -> None:
        """Wait until so many are confirmed."""
        until(lambda: len(self.sent) >= count, seconds, f"{count} confirmed messages")

    def said(self) -> list[dict[str, Any]]:
        """What became of each key so far."""
        return [one for one in self._publisher.said(self.batch) if "key" in one]

    @property
    def sent(self) -> list[str]:
        """The keys whose message the broker has confirmed."""
        return [one["key"] for one in self.said() if "queue" in one]

    def sent_to(self, queue: str) -> set[str]:
        """Those of them that went to one queue."""
        return {one["key"] for one in self.said() if one.get("queue") == queue}

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Those that it has not: ``refused`` is the error's name, ``seconds`` how long that took."""
        return [one for one in self.said() if "refused" in one]

    def ended(self, effects: Effects) -> set[str]:
        return effects.ended(f"{self.batch}-")

    def running(self, effects: Effects) -> set[str]:
        """Those that have begun and not ended; what died is among them until it has run again."""
        rows = effects.rows(f"{self.batch}-")
        return {row.key for row in rows if row.what == "begun"} - {row.key for row in rows if row.what == "ended"}

    def account(self, effects: Effects) -> "Account":
        return Account(self.sent, effects.rows(f"{self.batch}-"))

    def until_ended(self, effects: Effects, seconds: float) -> "Account":
        """Wait until everything that was confirmed has ended; return the account."""
        try:
            until(lambda: not self.account(effects).missing, seconds, "every confirmed task ended")
        except AssertionError as error:
            missing = self.account(effects).missing
            raise AssertionError(f"{error}; {len(self.sent)} sent, {len(missing)} missing: {missing[:20]}") from None
        return self.account(effects)


@dataclass
class Account:
    """What became of ``sent``: nothing may be missing, and what began again must have been flagged as redelivered."""

    sent: list[str]
    rows: list[Effect]

    @property
    def missing(self) -> list[str]:
        """Those that never ended."""
        return sorted(set(self.sent) - {row.key for row in self.rows if row.what == "ended"})

    @property
    def again(self) -> dict[str, int]:
        """How often each began that began more than once."""
        begun = Counter(row.key for row in self.rows if row.what == "begun")
        return {key: count for key, count in begun.items() if count > 1}

    @property
    def unflagged(self) -> dict[str, int]:
        """Those that began more than once and were not called redelivered each further time."""
        flags: dict[str, list[bool]] = defaultdict(list)
        for row in self.rows:
            if row.what == "begun":
                flags[row.key].append(row.redelivered)
        return {key: len(values) for key, values in flags.items() if len(values) - sum(values) > 1}

    @property
    def redelivered(self) -> set[str]:
        return {row.key for row in self.rows if row.redelivered}

    @property
    def figures(self) -> dict[str, int]:
        """The counts, for people."""
        return {
            "sent": len(self.sent),
            "ended": len({row.key for row in self.rows if row.what == "ended"}),
            "begun again": len(self.again),
            "redelivered": len(self.redelivered),
            "unflagged": len(self.unflagged),
            "missing": len(self.missing),
        }
