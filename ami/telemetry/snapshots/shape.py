"""The values of a snapshot: plain, frozen, and the same as JSON.

A figure is None where it could not be read; `Snapshot.unseen` then says why. Times are epoch seconds of the database's
clock, ages and durations are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Stop:
    """Why a queue or a worker takes no tasks by an operator's wish; ``what`` is paused, parked or stopped."""

    by: str
    why: str
    since: float
    until: float | None = None
    what: str = ""


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of a histogram, each the upper bound of its bucket; None where nothing was counted."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class QueueFigures:
    """One queue of the table.

    ``promise`` is kept, broken, unknown (nothing ran and nothing waits for long) or none (no wait target), and
    ``promise_words`` says so in a sentence. ``oldest_is_bound``: the oldest message is at most that old.
    ``waits`` and ``runs`` are of the last five minutes, in seconds; ``per_minute`` holds started, ended and failed of
    the last minute; ``history`` is what waited at each of the last 60 minutes, oldest first.
    """

    queue: str
    service: str
    wait_target_seconds: float | None
    waiting: int | None
    running: int
    delayed: int | None
    consumers: int | None
    dead_letters: int | None
    oldest_seconds: float | None = None
    oldest_is_bound: bool = False
    promise: str = "unknown"
    promise_words: str = ""
    waits: Quantiles = Quantiles()
    runs: Quantiles = Quantiles()
    per_minute: dict[str, float] = field(default_factory=dict)
    history: tuple[int | None, ...] = ()
    paused: Stop | None = None
    workers: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskFigures:
    """A task that has run for two seconds or more."""

    id: str
    task: str
    pid: int
    running_seconds: float
    kib: int = 0
    progress: str = ""
    is_redelivered: bool = False


@dataclass(frozen=True)
class WorkerFigures:
    """One worker. ``state`` is running, parked, held, stale, disconnected or a verdict of the rescue (dead, wedged...).

    ``hold_percent`` and ``release_percent`` are the governor's thresholds of ``memory_limit_bytes``. ``parked`` is the
    operator's wish, also before the worker has confirmed it: then ``state`` is not parked yet. ``reachable_pid`` is its
    parent's for the processes of web, where they can see it.
    """

    node: str
    service: str
    host: str
    version: str
    state: str
    why: str
    seen_seconds: float
    started_at: float
    queues: tuple[str, ...]
    closed_queues: tuple[str, ...]
    concurrency: int
    children: int
    pid: int
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    hold_percent: float | None = None
    release_percent: float | None = None
    held_seconds: float | None = None
    reasons: tuple[str, ...] = ()
    parked: Stop | None = None
    running: tuple[TaskFigures, ...] = ()
    reachable_pid: int | None = None


@dataclass(frozen=True)
class BeatFigures:
    """One beat, and the schedule as it sees it: when an entry last ticked, and when the next is due."""

    name: str
    seen_seconds: float
    last_tick_at: float | None = None
    next_tick_at: float | None = None


@dataclass(frozen=True)
class JobFigures:
    """A job that runs. ``done`` is the share of its images that are settled, 0 to 1."""

    pk: int
    name: str
    kind: str
    project: str
    status: str
    stage: str
    done: float
    failed_images: int = 0
    images_per_second: float | None = None
    left_seconds: float | None = None


@dataclass(frozen=True)
class AlertFigures:
    """An alert that fires, since ``fired_at``. ``is_sent``: every receiver has got all there is to say."""

    fired_at: float
    is_sent: bool


@dataclass(frozen=True)
class FindingFigures:
    """A finding of ``queues check --live``: ``name`` is that of its row in docs/operations.md."""

    level: str
    name: str
    sentence: str
    target: str = ""
    alert: AlertFigures | None = None


@dataclass(frozen=True)
class Snapshot:
    """Everything at ``taken_at``. ``version`` changes with every snapshot: it is the pages' ETag.

    ``findings_at`` is when the findings were looked for, which is less often. ``delayed`` counts the delayed messages
    of all queues: RabbitMQ does not say for which queue they are. ``is_starting``: workers or beats are missing, and
    the deployment was just started (`ami.queues.startup`).
    """

    taken_at: float
    version: int
    queues: tuple[QueueFigures, ...]
    workers: tuple[WorkerFigures, ...]
    beats: tuple[BeatFigures, ...]
    jobs: tuple[JobFigures, ...]
    findings: tuple[FindingFigures, ...] = ()
    findings_at: float | None = None
    unseen: tuple[str, ...] = ()
    delayed: int | None = None
    is_starting: bool = False


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as plain data, which `from_json` reads."""
    made: dict[str, Any] = _plain(snapshot)
    return made


def _plain(value: Any) -> Any:
    """Return what `dataclasses.asdict` does, without its copies of every string and number."""
    if isinstance(value, (str, int, float, NoneType)):
        return value
    if is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _names(value.__class__)}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value]


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def from_json(data: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot that `as_json` made; fields of another version are left out."""
    found: Snapshot = _reader(Snapshot)(data)
    return found


@cache
def _reader(kind: Any) -> Any:
    """Return the function that makes a value of this type from plain data; None where the data is the value."""
    if is_dataclass(kind):
        made: Any = kind
        readers = {name: _reader(hint) for name, hint in get_type_hints(made).items()}
        return lambda data: made(
            **{
                name: read(each) if each is not None and (read := readers[name]) else each
                for name, each in data.items()
                if name in readers
            }
        )
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        inner = _reader(arguments[0])
        return (lambda data: tuple(map(inner, data))) if inner else tuple
    found: list[Any] = [each for each in arguments if is_dataclass(each)]
    return _reader(found[0]) if found else None
