"""The registry of job kinds: each app registers a function that advances its jobs by one slice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ami.jobs.errors import UnknownKind
from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services.transitions import move


class SliceOfWork(Protocol):
    """The time budget of one slice, as `ami.queues.slices.Slice` implements it."""

    def over(self) -> bool:
        """Whether the slice is used up: store the cursor and return False."""
        ...


Advance = Callable[[Job, SliceOfWork], bool]
Finish = Callable[[Job], None]


@dataclass(frozen=True)
class Stage:
    """One stage of the progress that users see."""

    key: str
    name: str


@dataclass(frozen=True)
class Kind:
    """One type of job: its function per slice, its function at the end, and its stages."""

    key: str
    advance: Advance
    finish: Finish
    stages: tuple[Stage, ...]
    per_image: bool = False
    is_long: bool = False


_kinds: dict[str, Kind] = {}


def succeed(job: Job) -> None:
    """Move a job whose work is done to SUCCESS."""
    move(job, JobStatus.SUCCESS)


def job_kind(
    key: str,
    *,
    stages: Sequence[str | tuple[str, str]] = ("work",),
    finish: Finish = succeed,
    per_image: bool = False,
    is_long: bool = False,
) -> Callable[[Advance], Advance]:
    """Register the decorated ``advance(job, slice) -> bool`` for jobs of type ``key``.

    ``advance`` returns True when the work is finished, or False when ``slice.over()``; then it is called again with
    the same job. It stores its cursor with ``job.save_progress(cursor=..., done=..., total=...)`` and may be called
    twice for one cursor. ``stages`` are keys, or (key, name) pairs. An exception is retried, then fails the job. A
    kind with ``is_long`` waits for one of the worker's slots for long work before it begins.
    """
    table = tuple(Stage(*((s, s.replace("_", " ").capitalize()) if isinstance(s, str) else s)) for s in stages)

    def register(advance: Advance) -> Advance:
        _kinds[key] = Kind(key, advance, finish, table, per_image, is_long)
        return advance

    return register


def kind_of(key: str) -> Kind:
    """Return the registered kind.

    Raises:
        UnknownKind: the message names the known kinds.
    """
    try:
        return _kinds[key]
    except KeyError:
        raise UnknownKind(
            f"No code is registered for jobs of type '{key}'. Known: {', '.join(registered_keys())}."
        ) from None


def registered_keys() -> list[str]:
    """Return the registered keys, sorted."""
    return sorted(_kinds)
