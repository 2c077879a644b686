"""The port to tasks with a policy: a call of one is a row, and a message names the run that the row was sent for.

`config` connects it to `ami.admission`. Without it (another application), and for tasks without a policy, nothing here
costs a statement.
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

from billiard import current_process
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_logger
from django.db import Error

logger = get_logger(__name__)

#: The header that names the run of a message; and how often its call was sent for a run.
RUN_HEADER, STARTS_HEADER = "antenna_admission", "antenna_starts"
#: What a worker adds to a request it receives, so that two messages of one run differ.
DELIVERY = "antenna_delivery"
OWN_HEADERS = (RUN_HEADER, STARTS_HEADER, DELIVERY)
#: The attribute of a request with what its run goes on with, and with the run that has begun.
_NEXT, _BEGUN = "antenna_next", "antenna_begun"

#: A task holds its slot so long before its message returns to its queue while the database is away.
AWAY_SECONDS = 5.0
#: The same as for a message that is delivered again: a call that was sent more often is buried.
MOST_STARTS = 10


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
    began_at: float


@dataclass(frozen=True)
class Note:
    """What the parent saw of a message of a run; ``pid`` is that of a process that is to have ended before it counts.

    ``at`` is when it was noted, on the monotonic clock.
    """

    run: str
    delivery: str
    end: End
    next: Next | None = None
    pid: int = 0
    at: float = field(default_factory=time.monotonic)


class Admission(Protocol):
    """The rows of calls and runs. Every method but ``woken`` may raise `django.db.Error`."""

    def call(self, app: Any, task: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float) -> Any:
        """Append a call in the caller's transaction; return its result. ``due`` in epoch seconds, 0 for now."""

    def adopt(self, task: Any, args: Any, kwargs: Any) -> None:
        """Append the running task's message, which no row is known of, as a call."""

    def begin(self, task: Any, run: str, delivery: str) -> Begun | None:
        """Begin the run, if it is to begin; ``args`` None: those of the message."""

    def end(self, task: Any, begun: Begun, following: Next | None) -> bool:
        """End a run that succeeded or goes on later; False if it was taken from this process before."""

    def split(self, task: Any, begun: Begun) -> bool:
        """Let the calls of a run that failed for the last time wait again in parts; False if there is one alone."""

    def wait_again(self, task: Any, run: str, delivery: str, following: Next) -> None:
        """Let the calls of a run that was sent, and is not to begin, wait for ``following``."""

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


def call(app: Any, task: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float) -> Any:
    """Stage a call; a retry of a running task changes the rows of its run instead.

    Raises:
        django.db.Error: as any statement of the caller's transaction.
    """
    assert _admission is not None
    headers = options["headers"]
    if options.get("retries") and isinstance(run := headers.get(RUN_HEADER), str):
        return _retry(app, args, kwargs, options, due, run)
    options["headers"] = {name: value for name, value in headers.items() if name not in OWN_HEADERS}
    return _admission.call(app, task, args, kwargs, options, due)


def _retry(app: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float, run: str) -> Any:
    following = Next(list(args or ()), dict(kwargs or {}), int(options["retries"]), due)
    running = app.current_worker_task
    request = running.request if running is not None else None
    # In the worker's loop there is none: what it retries for a process that has ended, it notes (`Request._settle`).
    if request is not None and getattr(request, RUN_HEADER, None) == run:
        setattr(request, _NEXT, following)
    return app.AsyncResult(options["task_id"])


def go_on(task: Any, following: Next) -> bool:
    """Let the running task's run go on with ``following`` after it has ended here; False where it has no run."""
    if getattr(task.request, _BEGUN, None) is None:
        return False
    setattr(task.request, _NEXT, following)
    return True


def run(task: Any, args: Any, kwargs: Any) -> Any:
    """Run a task that a worker was sent: one with a policy only for the run that its message names.

    Raises:
        celery.exceptions.Ignore: the message is an old one, a second one, or has become a row.
        celery.exceptions.Reject: the database is away, or the task was started too often.
    """
    if task.request.is_eager or not is_staged(task):
        return task.run(*args, **kwargs)
    begun = _begin(task, args, kwargs)
    request = task.request
    setattr(request, _BEGUN, begun)
    fields = {"task": task.name, "task_id": request.id}
    logger.info("👷 %s pulled job from queue", _process_name(), extra=fields)
    if begun.args is not None:
        args, kwargs = request.args, request.kwargs = begun.args, begun.kwargs
    try:
        result = task.run(*args, **kwargs)
    except (Ignore, Retry):
        _end(task, begun)
        raise
    except Reject:
        raise
    except Exception as error:
        _split(task, begun, error)
        raise
    if not _end(task, begun):
        raise Ignore
    logger.info("✅ %s finished job", _process_name(), extra=fields)
    return result


def _begin(task: Any, args: Any, kwargs: Any) -> Begun:
    assert _admission is not None
    request = task.request
    fields = {"task": task.name, "task_id": request.id}
    run, delivery = getattr(request, RUN_HEADER, None), str(getattr(request, DELIVERY, ""))
    try:
        if not isinstance(run, str):
            _admission.adopt(task, args, kwargs)
            logger.info("Message without a row adopted as a call", extra=fields)
            raise Ignore
        begun = _admission.begin(task, run, delivery)
    except Error as error:
        logger.warning("Run not begun, the database is away: %s", _line(error), extra=fields)
        time.sleep(AWAY_SECONDS)
        raise Reject("the database is away", requeue=True) from error
    if begun is None:
        logger.info("Message ignored: its run has begun or ended", extra=fields)
        raise Ignore
    if (starts := int(getattr(request, STARTS_HEADER, 0) or 0)) > MOST_STARTS:
        logger.error("Task buried: its process died or was stopped at every start", extra={**fields, "starts": starts})
        raise Reject(f"started {starts - 1} times and never finished", requeue=False)
    return begun


def is_of_run(task: Any) -> bool:
    """Whether the running task's message was sent for a run."""
    return is_staged(task) and isinstance(getattr(task.request, RUN_HEADER, None), str)


def wait_again(task: Any, seconds: float) -> None:
    """Let the calls of a message that `is_of_run` wait so long, before they are sent again; it has not begun.

    Raises:
        django.db.Error: they do not.
    """
    assert _admission is not None
    request = task.request
    following = Next(retries=int(request.retries or 0), due=time.time() + seconds)
    _admission.wait_again(task, getattr(request, RUN_HEADER), str(getattr(request, DELIVERY, "")), following)


def was_started_before(request: Any) -> bool:
    """Whether the call or message of a running task was given to a process before, which has not ended it."""
    starts = int(getattr(request, STARTS_HEADER, 0) or 0)
    return starts > 1 or bool((request.delivery_info or {}).get("redelivered"))


def _split(task: Any, begun: Begun, error: Exception) -> None:
    """Let a run of several calls that failed go on in parts; it is the last part that is a letter.

    Raises:
        celery.exceptions.Ignore: it does.
    """
    assert _admission is not None
    if begun.call is None:
        return
    try:
        is_split = _admission.split(task, begun)
    except Error:
        return  # The letter has one of its calls.
    if is_split:
        setattr(task.request, _BEGUN, None)
        fields = {"task": task.name, "task_id": task.request.id}
        logger.warning("Run failed, its calls are tried in parts: %r", error, extra=fields)
        raise Ignore from error


def _end(task: Any, begun: Begun) -> bool:
    """End the run; False if it was taken away. While the database is away the parent goes on trying."""
    assert _admission is not None
    request = task.request
    fields = {"task": task.name, "task_id": request.id}
    try:
        if _admission.end(task, begun, getattr(request, _NEXT, None)):
            return True
    except Error as error:
        logger.warning("End of a run not written; the worker's parent goes on: %s", _line(error), extra=fields)
        return True
    finally:
        setattr(request, _BEGUN, None)
    logger.warning("Run ended after it was taken from this process", extra=fields)
    return False


def is_lost() -> bool | None:
    """Whether the running task's run was taken from it; None where it has none.

    Raises:
        django.db.Error: the database does not say.
    """
    from celery import current_task

    begun = getattr(current_task.request, _BEGUN, None) if current_task else None
    return None if begun is None or _admission is None else not _admission.holds(begun)


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
    taken = []
    while _notes:
        taken.append(_notes.popleft())
    return taken


def has_notes() -> bool:
    return bool(_notes)


def put_back(notes: list[Note]) -> None:
    """Keep notes that could not be written."""
    _notes.extendleft(reversed(notes))


def _process_name() -> str:
    """Return ``Worker-3`` of the pool's ``ForkPoolWorker-3``."""
    name = str(current_process().name)
    return f"Worker-{name.rpartition('-')[2]}" if "-" in name else name


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
