"""Writes what a worker's parent saw of runs whose own process could not: it was killed, or the database was away."""

import os
import time
from collections.abc import Sequence
from typing import Any

from celery.utils.log import get_logger
from django.db import Error

from ami.admission import runs
from ami.admission.models import Run
from ami.celery import batch_writes, staged_calls
from ami.celery.staged_calls import End, Note
from ami.governor.probes import identity

logger = get_logger(__name__)

#: A process that was ended is waited for so long; by then it was killed, whatever the kernel shows.
ENDS_SECONDS = 10.0


def write(app: Any) -> bool:
    """Write the notes whose processes have ended; False if some are left. What cannot be written is kept.

    One statement for those of runs that their own processes have ended: nearly all.
    """
    notes = staged_calls.take_notes()
    if not notes:
        return True
    left = [note for note in notes if note.pid and is_alive(note.pid) and time.monotonic() - note.at < ENDS_SECONDS]
    waiting = [note for note in notes if note not in left]
    try:
        there: set[str] = set()
        batch_writes.write(waiting, lambda some: there.update(_known(some)), _refused)
        waiting = [note for note in waiting if note.run in there]
        while waiting:
            batch_writes.write(waiting[:1], lambda one: _settle(app, one[0]), _refused)
            del waiting[0]
    except Error as error:
        logger.warning("Ends of runs not written yet: %s", str(error).partition("\n")[0])
    finally:
        staged_calls.put_back([*waiting, *left])
    return not waiting and not left


def _known(notes: Sequence[Note]) -> set[str]:
    return set(Run.objects.filter(pk__in={note.run for note in notes}).values_list("pk", flat=True))


def _settle(app: Any, note: Note) -> None:
    if runs.settle(app, note) and note.end is not End.DONE:
        logger.info("Run ended by the worker's parent: %s", note.end, extra={"run": note.run})


def _refused(note: Note, error: Exception) -> None:
    """Name a note that holds up no other one; its run is taken back when it is overdue."""
    logger.error("End of a run not written, the database refuses it: %r", error, extra={"run": note.run})


def is_alive(pid: int) -> bool:
    """Whether a process that is to have ended still runs; this one is that of a pool of threads."""
    if pid == os.getpid():
        return False
    try:
        return identity.state(pid) not in ("Z", "X")
    except ProcessLookupError:
        return False
