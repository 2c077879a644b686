"""Recounts the objects whose calculated fields are stale, in slices."""

from collections.abc import Iterable, Sequence

from celery.utils.log import get_task_logger
from django.db import InterfaceError, OperationalError

from ami.main.models.stations import Deployment, Event
from ami.main.services.counts import refresh
from ami.main.services.stale_marks import mark_stale
from ami.queues.slices import Slice

logger = get_task_logger(__name__)

#: Keys of a project's events or stations that are read at once.
CHUNK = 500


class NotCounted(Exception):
    """None of the objects could be recounted."""


def recount(kind: str, pks: Iterable[int], turn: Slice) -> list[int]:
    """Recount these objects until the slice is over; return the keys that are left, last those that failed.

    Raises:
        NotCounted: all failed, each was logged.
        django.db.OperationalError, django.db.InterfaceError: the database is away, or a deadlock.
    """
    keys = sorted(set(pks))
    failed: list[int] = []
    for place, key in enumerate(keys):
        if place and turn.over():
            return keys[place:] + failed
        if not _refreshed(kind, key):
            failed.append(key)
    if failed and failed == keys:
        raise NotCounted(f"{len(failed)} ({kind}) could not be recounted, such as {failed[0]}.")
    return failed


def _refreshed(kind: str, key: int) -> bool:
    try:
        refresh(kind, key)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        logger.exception("Not recounted", extra={"kind": kind, "object_pk": key})
        return False
    return True


def recount_project(project_id: int, turn: Slice, after: Sequence[int] = (0, 0)) -> tuple[int, int] | None:
    """Recount a project's events, then its stations, until the slice is over; return where to go on, None at the end.

    ``after`` is 0 for events or 1 for stations, and the key of the last one that was tried. One that fails is left to
    `recount`, which a call of its own does.
    """
    step, last = after
    for number, (kind, rows) in enumerate((("event", Event.objects), ("deployment", Deployment.objects))):
        if number < step:
            continue
        own = rows.filter(project_id=project_id).order_by("pk")
        last = last if number == step else 0
        while keys := list(own.filter(pk__gt=last).values_list("pk", flat=True)[:CHUNK]):
            for key in keys:
                last = key
                if not _refreshed(kind, key):
                    mark_stale(kind, [key])
                if turn.over():
                    return number, last
    return None
