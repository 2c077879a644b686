"""The ports of a worker to what the deployment knows: its row, the operators' wishes, and the rescue of dead workers.

`config` connects them to the database. Without them (another application) a worker has no row and no wishes. Their
methods are called from a background thread of the worker's parent, or of beat; each may raise `django.db.Error`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ami.celery.failures.record import Failure


@dataclass(frozen=True)
class Wish:
    """One row of `ami.queues.models.DesiredState`; ``since`` and ``until`` in epoch seconds of the database's clock."""

    kind: str
    name: str
    aspect: str
    value: int
    by: str = ""
    why: str = ""
    since: float = 0.0
    until: float | None = None


@dataclass(frozen=True)
class RunningTask:
    """A task that runs; ``started_at`` in epoch seconds of this machine, ``stall_seconds`` 0 without a stall limit."""

    id: str
    name: str
    pid: int
    started_at: float
    kib: int = 0
    is_redelivered: bool = False
    progress: str = ""
    beaten_at: float | None = None
    stall_seconds: int = 0


@dataclass(frozen=True)
class WorkerReport:
    """What a worker's row says: the fields of `ami.queues.models.Worker` of the same names."""

    node: str
    service: str
    host: str
    queues: tuple[str, ...]
    pool: str
    version: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int
    started_at: float
    children: tuple[tuple[int, int], ...] = ()
    connection_name: str = ""
    database_name: str = ""
    consumers: tuple[str, ...] = ()
    is_connected: bool = False
    loop_age_seconds: float = 0.0
    loop_allowance_seconds: float = 0.0
    frame_age_seconds: float | None = None
    is_parked: bool = False
    closed_queues: tuple[str, ...] = ()
    concurrency: int = 0
    repairs: dict[str, int] = field(default_factory=dict)
    running: tuple[RunningTask, ...] = ()
    unaccounted: int = 0
    totals: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    governor: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The wishes on record, and the database's time (epoch seconds) when they were read.

    ``sweep_is_needed``: a worker is not well, or was not, and nobody else looks after it. ``oldest_beat_seconds`` is
    the age of the latest beat of the worker that has been silent for longest.
    """

    wishes: tuple[Wish, ...]
    now: float
    sweep_is_needed: bool = False
    oldest_beat_seconds: float = 0.0


class WorkerRecords(Protocol):
    """The worker's row and the wishes, in a database that all workers of a deployment see."""

    def beat(self, report: WorkerReport) -> Answer:
        """Write the worker's row and read the wishes: two statements."""

    def tasks_running(self, node: str, tasks: Sequence[RunningTask], ended: Iterable[str] = ()) -> None:
        """Write the rows of the tasks that have run for a while, and end those of counted starts that have ended.

        One statement for each of both, none for an empty list.
        """

    def attempt(self, task_id: str, task: str, node: str) -> int:
        """Count one more start of a redelivered task, and return how many there were; called in the task's process."""

    def ticks_ended(self, task_ids: Sequence[str]) -> None:
        """Record the end of beat's tasks that did not run; no statement for an empty list."""

    def tasks_ended(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Add up how many tasks of each queue were completed, and failed for good; no statement for none."""

    def failed(self, failures: Sequence[Failure]) -> None:
        """Record tries that failed; two statements."""

    def letter_done(self, letter: int, task_id: str) -> None:
        """Record that the task of a dead letter succeeded after its replay; called in the task's process."""

    def is_disabled(self, task: str, job: str) -> bool:
        """Whether a task or a job is disabled. Called in the task's process."""

    def set_aside(self, task: str, job: str, message: Mapping[str, Any]) -> bool:
        """Write a message down whose task or job is disabled; False if neither is. Called in the task's process."""

    def ended(self, report: WorkerReport) -> None:
        """Keep the totals of this start of a worker, which ends in order, and delete its row."""


class Sweeper(Protocol):
    """Looks for dead workers while it holds the deployment's lease."""

    def turn(self, app: Any, name: str, *, is_needed: bool = True) -> None:
        """Look if it is time and needed; called every second by the sweep thread of the worker or beat ``name``."""

    def database_answered(self, answered: bool) -> None:
        """Note whether a statement of the process went through, from any thread: after an outage all look dead."""


class Duty(Protocol):
    """What one process of the deployment does for all, under a lease of its own."""

    def turn(self, app: Any, name: str) -> None:
        """Do what is due; called every second by the sweep thread of the worker or beat ``name``."""

    def wake(self) -> None:
        """Look at the next turn: an operator has asked for something. Called from any thread."""

    def end(self, name: str) -> None:
        """Let another process go on; called once, when ``name`` ends in order."""


_records: WorkerRecords | None = None
_sweeper: Sweeper | None = None
_duties: tuple[Duty, ...] = ()


def connect(records: WorkerRecords | None, sweeper: Sweeper | None, *duties: Duty) -> None:
    global _records, _sweeper, _duties
    _records, _sweeper, _duties = records, sweeper, duties


def duties() -> tuple[Duty, ...]:
    return _duties


def connected() -> WorkerRecords | None:
    return _records


def sweeper() -> Sweeper | None:
    return _sweeper
