"""Says when a source that this process asks goes away and when it is back: a line each, and one a minute meanwhile.

What fails for want of a source is not logged beside that: `OutageFilter` leaves it out in each process, whichever
component or library logs it. A task that fails keeps its own lines.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from celery.utils.log import get_logger

logger = get_logger(__name__)

#: Sources; the third is the broker as far as it confirms messages, which it may not do while it answers.
DATABASE, BROKER, CONFIRMATIONS, NATS, BUCKET = "database", "broker", "confirmations", "NATS", "bucket"
#: One line is enough about both.
SAME_SERVER = {BROKER: (CONFIRMATIONS,), CONFIRMATIONS: (BROKER,)}
THE = {DATABASE: "The database", BROKER: "The broker", BUCKET: "The bucket"}
AGAIN_SECONDS = 60.0
#: A source is back when it answers and nothing has failed for so long: a server without a free connection answers some
#: of those who ask. A worker writes its row every ten seconds.
QUIET_SECONDS = 12.0
#: Loggers of what fails itself, such as a task.
KEPT = ("celery.app.trace", "celery.worker.request", __name__)
#: Of a message that is published again and again and has expired meanwhile.
REPEATED = ("celery.app.base",)
#: What Django logs of a request that was answered so.
UNAVAILABLE = 503


@dataclass(frozen=True)
class Source:
    """A source of which errors tell that it is away; `config` connects it.

    ``sentence`` returns why, with the remedy. ``loggers`` log nothing but failures to reach it, such as with an
    OSError, which elsewhere may be of anything: ``is_away`` gets whether the error is one of theirs.
    """

    name: str
    is_away: Callable[[BaseException, bool], bool]
    sentence: Callable[[BaseException], str]
    loggers: tuple[str, ...] = ()


@dataclass
class Outage:
    """Times by the monotonic clock."""

    since: float
    failed_at: float
    logged_at: float


_lock = threading.Lock()
_sources: dict[str, Source] = {}
_outages: dict[str, Outage] = {}
_complained_at: dict[str, float] = {}
_is_silent = False


def connect(*sources: Source) -> None:
    """Recognise the errors of these sources, those of the first one before the others'."""
    _sources.clear()
    _sources.update({source.name: source for source in sources})


def silence() -> None:
    """Log nothing of sources: this process is a command, which says itself what does not answer."""
    global _is_silent
    _is_silent = True


def is_away(name: str) -> bool:
    """Whether a source did not answer when it was last asked."""
    return name in _outages


def failed(error: BaseException, logger_name: str = "") -> bool:
    """Report the source that an error says to be away; return False where it says that of none."""
    for source in _sources.values():
        is_its = logger_name in source.loggers
        for cause in _chain(error) if is_its else (error,):
            if source.is_away(cause, is_its):
                report(source.name, source.sentence, cause)
                return True
    return False


def report(name: str, sentence: Callable[[BaseException], str], error: BaseException) -> None:
    """Note that a source did not answer, and log it if it is time to."""
    now = time.monotonic()
    with _lock:
        kin = (_outages[other] for other in SAME_SERVER.get(name, ()) if other in _outages)
        outage = _outages.setdefault(name, Outage(now, now, max((each.logged_at for each in kin), default=-math.inf)))
        outage.failed_at = now
        if _is_silent or now - outage.logged_at < AGAIN_SECONDS:
            return
        outage.logged_at = now
    logger.error("%s%s", sentence(error), f" For {now - outage.since:.0f} s so far." if now > outage.since else "")


def answered(name: str, *, is_sure: bool = False) -> None:
    """Note that a source answers; ``is_sure``: nothing else that asks it may fail meanwhile."""
    if name not in _outages:
        return
    now = time.monotonic()
    with _lock:
        outage = _outages.get(name)
        if outage is None or not (is_sure or now - outage.failed_at >= QUIET_SECONDS):
            return
        del _outages[name]
        is_whole = not any(other in _outages for other in SAME_SERVER.get(name, ()))
    if _is_silent or not is_whole:
        return
    what = "The broker confirms messages" if name == CONFIRMATIONS else f"{THE.get(name, name)} answers"
    logger.warning("%s again, after %.0f s.", what, now - outage.since)


def complain(what: str, error: BaseException, **fields: str) -> None:
    """Log that a component's cycle failed, at most once a minute; for want of a source, that is what is reported.

    With ``fields``, which name the task or whatever failed by itself, the traceback is logged, too.
    """
    now, key = time.monotonic(), " ".join((what, *fields.values()))
    if failed(error) or now - _complained_at.get(key, -math.inf) < AGAIN_SECONDS:
        return
    _complained_at[key] = now
    why = str(error).partition("\n")[0] or repr(error)
    logger.log(
        logging.ERROR if fields else logging.WARNING,
        "%s: %s",
        what,
        why,
        exc_info=error if fields else None,
        extra=fields,
    )


class OutageFilter(logging.Filter):
    """For a process's handlers: leaves out what is logged with the error of a source that is away, which is reported
    instead, and requests that were answered 503 for it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name in KEPT:
            return True
        if _outages and (record.name in REPEATED or getattr(record, "status_code", 0) == UNAVAILABLE):
            return False
        return not any(failed(error, record.name) for error in _errors(record))


def _errors(record: logging.LogRecord) -> Iterator[BaseException]:
    if record.exc_info and record.exc_info[1] is not None:
        yield record.exc_info[1]
    if isinstance(record.args, tuple):
        yield from (each for each in record.args if isinstance(each, BaseException))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)
