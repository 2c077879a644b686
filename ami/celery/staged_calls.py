"""The port to tasks with a policy: a call of one is a row, and a message names the run that the row was sent for
(`ami.celery.staged_runs`).

`config` connects it to `ami.admission`. Without it (another application), and for tasks without a policy, nothing here
costs a statement. Only who calls asks for the policy: a message that names a run begins and ends it in every version,
also in one whose task has no policy yet, or none any more.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import uuid4

#: The header that names the run of a message; and how often its call was sent for a run.
RUN_HEADER, STARTS_HEADER = "antenna_admission", "antenna_starts"
#: What a worker adds to a request it receives, so that two messages of one run differ.
DELIVERY = "antenna_delivery"
OWN_HEADERS = (RUN_HEADER, STARTS_HEADER, DELIVERY)
#: The attribute of a request with what its run goes on with.
NEXT = "antenna_next"


class End(StrEnum):
    """How a run ends. ``RETURNED``: its calls wait again. ``FAILED``: its message is a letter, and a key in order stops
    there. ``DISCARDED``: its calls are deleted.
    """

    DONE = "done"
    RETURNED = "returned"
    FAILED = "failed"
    DISCARDED = "discarded"


@dataclass(frozen=True)
class Next:
    """What the calls of a run wait for as one: a retry, or the next slice of long work.

    ``args`` and ``kwargs`` are None where they stay; ``due`` in epoch seconds, 0 for now.
    """

    args: Any = None
    kwargs: Any = None
    retries: int = 0
    due: float = 0.0
    headers: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Begun:
    """A run that has begun in this process; ``args`` and ``kwargs`` are those of its calls together."""

    run: str
    delivery: str
    call: int | None
    args: Any
    kwargs: Any


@dataclass(frozen=True)
class Note:
    """What the parent saw of a message of a run; ``pid`` is that of a process that is to have ended before it counts.

    ``task`` and ``task_id`` are the message's: the note counts for a run of that call alone; None where its caller
    knows that it is. ``at`` is when it was noted, on the monotonic clock.
    """

    run: str
    delivery: str
    end: End
    next: Next | None = None
    pid: int = 0
    task: str | None = None
    task_id: str | None = None
    at: float = field(default_factory=time.monotonic)


class Admission(Protocol):
    """The rows of calls and runs. Every method but ``woken`` may raise `django.db.Error`."""

    def call(self, app: Any, task: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float) -> Any:
        """Append a call in the caller's transaction; return its result. ``due`` in epoch seconds, 0 for now."""

    def adopt(self, task: Any, args: Any, kwargs: Any) -> None:
        """Append the running task's message, which no row is known of, as a call."""

    def begin(self, task: Any, run: str, delivery: str, task_id: str) -> Begun | None:
        """Begin the run, if it is to begin and is this call's; ``args`` None: those of the message."""

    def end(self, task: Any, begun: Begun, following: Next | None) -> bool:
        """End a run that succeeded or goes on later; False if it was taken from this process before."""

    def split(self, task: Any, begun: Begun) -> bool:
        """Let the calls of a run that failed for the last time wait again in parts; False if there is one alone."""

    def wait_again(self, note: Note) -> None:
        """Let the calls of a run that was sent, and is not to begin, wait for what follows."""

    def holds(self, begun: Begun) -> bool:
        """Whether the run is still this process's; in a transaction no other process can take it before its end."""


_admission: Admission | None = None
_local = threading.local()
#: What the worker's loop has noted; a thread writes it down.
_notes: deque[Note] = deque(maxlen=100_000)


def _nothing() -> None:
    pass


_noted: Callable[[], None] = _nothing


def connect(admission: Admission | None, noted: Callable[[], None] = _nothing) -> None:
    """Connect the rows; ``noted`` is called in the worker's loop after each note."""
    global _admission, _noted
    _admission, _noted = admission, noted


def admission() -> Admission | None:
    """Return the rows, None where nothing is connected."""
    return _admission


@contextmanager
def dispatching() -> Iterator[None]:
    """Publish what this thread publishes inside the block, instead of staging it."""
    _local.is_dispatching = True
    try:
        yield
    finally:
        _local.is_dispatching = False


def is_dispatching() -> bool:
    return getattr(_local, "is_dispatching", False)


def is_staged(task: Any) -> bool:
    """Whether calls of the task are rows here."""
    return _admission is not None and bool(getattr(task, "has_policy", False))


def stages(task: Any) -> bool:
    """Whether a call of the task is to be a row; not while its row is published."""
    return is_staged(task) and not is_dispatching()


def without_own(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name not in OWN_HEADERS}


def is_of_run(values: Any) -> bool:
    """Whether these headers, or this request, are of a message that was sent for a run; its task may have no policy."""
    found = values.get(RUN_HEADER)
    return _admission is not None and isinstance(found, str)


def is_retry_of_run(options: Mapping[str, Any]) -> bool:
    """Whether a call with these options is the retry of a message that was sent for a run."""
    return bool(options.get("retries")) and not is_dispatching() and is_of_run(options.get("headers") or {})


def call(app: Any, task: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float) -> Any:
    """Stage a call; a retry of a running task changes the rows of its run instead.

    Raises:
        django.db.Error: as any statement of the caller's transaction.
    """
    assert _admission is not None
    headers = options["headers"]
    if is_retry_of_run(options):
        return _retry(app, args, kwargs, options, due, headers[RUN_HEADER])
    options["headers"] = without_own(headers)
    return _admission.call(app, task, args, kwargs, options, due)


def _retry(app: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float, run: str) -> Any:
    following = Next(list(args or ()), dict(kwargs or {}), int(options["retries"]), due)
    running = app.current_worker_task
    request = running.request if running is not None else None
    # In the worker's loop there is none: what it retries for a process that has ended, it notes (`Request._settle`).
    if request is not None and getattr(request, RUN_HEADER, None) == run:
        setattr(request, NEXT, following)
    return app.AsyncResult(options["task_id"])


def mark(headers: dict[str, Any]) -> None:
    """Tell one delivery of a run's message from every other one."""
    headers.pop(DELIVERY, None)
    if RUN_HEADER in headers:
        headers[DELIVERY] = uuid4().hex


def note(made: Note) -> None:
    """Note what became of a message; called in the worker's loop, which asks no database.

    The process of a run that is done has written that itself, nearly always: it can wait for the next look.
    """
    _notes.append(made)
    if made.end is not End.DONE:
        _noted()


def take_notes() -> list[Note]:
    """Return and forget what was noted."""
    return list(iter(lambda: _notes.popleft() if _notes else None, None))


def has_notes() -> bool:
    return bool(_notes)


def put_back(notes: list[Note]) -> None:
    """Keep notes that could not be written."""
    _notes.extendleft(reversed(notes))
