"""The governors' status: which workers hold their consumption, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ami.celery.producer import Unconfirmed
from ami.queues import start_commands
from ami.queues.refusals import Refused

INSPECT_SECONDS = 2.0

#: What :func:`cells` returns.
COLUMNS = (
    "worker",
    "mode",
    "state",
    "memory",
    "swap/GPU/pressure/CPU",
    "slots",
    "running",
    "held s",
    "recycled",
    "ended",
    "buried",
    "reasons",
)


class NoWorkerAnswered(Refused):
    """No worker answered in time."""


@dataclass(frozen=True)
class Worker:
    """One worker that answered. ``governor`` is its ``Governor.info()``, None without a governor.

    ``own_queues`` are those that it was started for, even if their consumer was cancelled.
    """

    name: str
    queues: tuple[str, ...]
    is_ours: bool
    governor: Mapping[str, Any] | None
    own_queues: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """``on``, ``dry-run``, ``off``, or ``-`` for a worker of another version."""
        if self.governor is not None:
            return str(self.governor["mode"])
        return "off" if self.is_ours else "-"

    @property
    def state(self) -> str:
        """``consuming``, ``held``, ``would hold`` (dry-run), or ``-`` without a governor."""
        if self.governor is None:
            return "-"
        state = str(self.governor["state"])
        return "would hold" if state == "held" and self.mode == "dry-run" else state

    @property
    def is_held(self) -> bool:
        """Whether it takes no tasks now."""
        return self.state == "held"


def stats(app: Any) -> dict[str, dict[str, Any]]:
    """Return what each worker answered to ``celery inspect stats`` within 2 s."""
    return app.control.inspect(timeout=INSPECT_SECONDS).stats() or {}


def workers(answers: Mapping[str, Mapping[str, Any]]) -> list[Worker]:
    """Return those that answered with :func:`stats`, by name."""
    return [_worker(name, stats) for name, stats in sorted(answers.items())]


#: Causes of a hold that need no operator.
EXPECTED_CAUSES = {"paused", "grace"}


def held_queues(found: Sequence[Worker]) -> dict[str, list[str]]:
    """Return the queues whose workers are all held, each with its workers; paused and just started workers do not
    count as held.
    """
    queues = sorted({queue for worker in found for queue in worker.queues})
    readers = {queue: [worker for worker in found if queue in worker.queues] for queue in queues}
    return {
        queue: [worker.name for worker in those]
        for queue, those in readers.items()
        if all(worker.is_held and set((worker.governor or {})["causes"]) - EXPECTED_CAUSES for worker in those)
    }


def held(app: Any) -> set[str]:
    """Return the queues whose workers, as far as they answer, are all held; none while the broker takes no messages."""
    try:
        return set(held_queues(workers(stats(app))))
    except Unconfirmed:
        return set()


def query(app: Any) -> list[Worker]:
    """Return every worker's governor status.

    Raises:
        NoWorkerAnswered: no worker answered within 2 s.
        kombu.exceptions.OperationalError: the broker itself does not answer.
    """
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        where = connection.as_uri()
    if answers := stats(app):
        return workers(answers)
    raise NoWorkerAnswered(
        f"No worker answered within {INSPECT_SECONDS:.0f} s; start them ('{start_commands.of_workers()}'), or see "
        f"whether they read the broker at {where}."
    )


def cells(worker: Worker) -> tuple[object, ...]:
    """Return the worker's line of the table, one cell for each of COLUMNS; None where a value is missing."""
    status = worker.governor
    if status is None:
        return (worker.name, worker.mode, *[None] * (len(COLUMNS) - 2))
    percent = status["percent"]
    return (
        worker.name,
        worker.mode,
        worker.state,
        _memory(status),
        "/".join(_percent(percent.get(name)) for name in ("swap", "gpu", "pressure", "cpu")),
        f"{status['slots']}/{status['places']}",
        status["running"],
        f"{status['held_seconds']:.0f}",
        _recycled(status["recycled"]),
        status["ended"],
        status["buried"],
        "; ".join(status["reasons"]) or None,
    )


def as_dicts(found: list[Worker]) -> list[dict[str, Any]]:
    """Return each worker as plain data, for ``--json``; ``governor`` is its whole status, or null."""
    return [
        {"worker": worker.name, "queues": worker.queues, "mode": worker.mode, "governor": worker.governor}
        for worker in found
    ]


def _worker(name: str, stats: Mapping[str, Any]) -> Worker:
    topology = stats.get("topology")
    queues = tuple(topology["queues"]) if topology else ()
    own = tuple(topology["own_queues"]) if topology else ()
    return Worker(name, queues, topology is not None, stats.get("governor"), own)


def _memory(status: Mapping[str, Any]) -> str:
    used, limit = status["memory_used_bytes"], status["memory_limit_bytes"]
    if used is None or not limit:
        return "unknown"
    return f"{_percent(status['percent']['memory'])} {_size(used)}/{_size(limit)} {status['scope']}"


def _size(size_bytes: int) -> str:
    mib = size_bytes / 1024**2
    return f"{mib / 1024:.1f}GiB" if mib >= 1024 else f"{mib:.0f}MiB"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"


def _recycled(counts: Mapping[str, int]) -> str:
    by_reason = ", ".join(f"{why} {count}" for why, count in sorted(counts.items()))
    return f"{sum(counts.values())} ({by_reason})" if counts else "0"
