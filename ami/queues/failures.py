"""The failures of tasks: written by the workers, listed, searched, and grouped by their cause."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.utils.log import get_logger
from django.db import Error
from django.db.models import Count, Max, Min, Q, QuerySet
from django.utils import timezone

from ami.celery import storable
from ami.celery.failures.record import FOREIGN, Failure
from ami.queues.dead_letters import DeadLetter
from ami.queues.models import TaskFailure
from ami.queues.old_rows import ROWS, delete_some
from ami.queues.redaction import redact_text

logger = get_logger(__name__)

#: Failures are kept for so long, and the newest so many.
KEPT, MOST_KEPT = timedelta(days=30), 200_000

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_HEXADECIMAL = re.compile(r"\b(?:0x[0-9a-f]+|(?=[0-9a-f]*\d)[0-9a-f]{8,})\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LINE = re.compile(r":\d+ in ")


@dataclass(frozen=True)
class Cause:
    """Failures with one cause: how many tries, of how many tasks, and between when."""

    cause: str
    task: str
    exception: str
    place: str
    message: str
    tries: int
    tasks: int
    first_at: datetime
    last_at: datetime


def record(failures: Sequence[Failure]) -> None:
    """Write failures, with their secrets masked; one that is written already stays as it is. One statement."""
    TaskFailure.objects.bulk_create([_row(each) for each in failures], ignore_conflicts=True)


def forget_old() -> int:
    """Delete some of what is older than `KEPT`, and of the rest the oldest beyond `MOST_KEPT`; return how many."""
    old = delete_some(TaskFailure.objects.filter(failed_at__lt=timezone.now() - KEPT).order_by("failed_at"))
    oldest = TaskFailure.objects.order_by("-pk").values_list("pk", flat=True)[MOST_KEPT : MOST_KEPT + 1].first()
    surplus = TaskFailure.objects.none() if oldest is None else TaskFailure.objects.filter(pk__lte=oldest)
    return old + delete_some(surplus.order_by("pk"), ROWS - old)


def found(
    *, task: str = "", task_id: str = "", cause: str = "", search: str = "", since: datetime | None = None
) -> "QuerySet[TaskFailure]":
    """Return the failures that fit, newest first; ``search`` is a part of the exception, message or place."""
    given = {"task": task, "task_id": task_id, "cause": cause, "failed_at__gte": since}
    rows = TaskFailure.objects.filter(**{name: value for name, value in given.items() if value})
    if search:
        fits = Q(exception__icontains=search) | Q(message__icontains=search) | Q(place__icontains=search)
        rows = rows.filter(fits)
    return rows.order_by("-failed_at", "-pk")


def as_dict(row: TaskFailure, *, with_traceback: bool = False) -> dict[str, Any]:
    """Return a failure as JSON takes it."""
    left_out = ("id",) if with_traceback else ("id", "traceback")
    names = [field.name for field in TaskFailure._meta.concrete_fields if field.name not in left_out]
    return {name: getattr(row, name) for name in names} | {"failed_at": row.failed_at.isoformat()}


def causes(rows: "QuerySet[TaskFailure]", limit: int = 50) -> list[Cause]:
    """Return the causes of these failures, the most frequent first."""
    counts = {"tasks": Count("task_id", distinct=True), "first_at": Min("failed_at"), "last_at": Max("failed_at")}
    found = by_cause(rows, TaskFailure.objects.defer("traceback"), limit, tries=Count("pk"), **counts)
    return [
        Cause(**group, task=row.task, exception=row.exception, place=row.place, message=row.cause_text)
        for group, row in found
    ]


def by_cause(
    rows: "QuerySet[Any]", known: "QuerySet[Any]", limit: int, **counts: Any
) -> list[tuple[dict[str, Any], Any]]:
    """Return each cause of these rows with what is counted of it, and its newest row of ``known``; two statements.

    Those with most of the first of ``counts`` come first.
    """
    order = f"-{next(iter(counts))}", "cause"
    found = list(rows.order_by().values("cause").annotate(newest=Max("pk"), **counts).order_by(*order)[:limit])
    newest = known.in_bulk([group["newest"] for group in found])
    return [(group, row) for group in found if (row := newest.get(group.pop("newest"))) is not None]


def latest(task_ids: Iterable[str]) -> dict[str, TaskFailure]:
    """Return the last failure of each of these tasks that has one; one statement."""
    rows = TaskFailure.objects.filter(task_id__in=list(task_ids)).order_by("task_id", "failed_at", "pk")
    return {row.task_id: row for row in rows.defer("traceback")}


def explained(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Return dead letters whose detail names the failure that buried them, as far as one is on record."""
    kept = list(letters)
    try:
        known = latest(letter.task_id for letter in kept)
    except Error as error:
        logger.warning("Causes of dead letters not read: %s", str(error).partition("\n")[0])
        return kept
    return [replace(each, detail=sentence(known[each.task_id])) if each.task_id in known else each for each in kept]


def sentence(row: TaskFailure) -> str:
    """Return what happened at one try: the exception, its message and place, the worker, and for how long it ran."""
    what = f"{row.exception}: {' '.join(row.message.split())[:300]}" if row.message else row.exception
    where = f" at {row.place}" if row.place else ""
    return f"{what}{where} (try {row.retries + 1} on {row.node}, after {row.seconds:.1f} s)"


def traceback_lines(text: str) -> list[tuple[str, bool]]:
    """Return the lines of a traceback, each with whether it is of the project's own code, or names the exception."""
    lines, is_own = [], True
    for line in text.splitlines():
        if line.startswith("  File "):
            is_own = not FOREIGN.search(line)
        elif not line.startswith(" "):
            is_own = True
        lines.append((line, is_own))
    return lines


def normalised(message: str) -> str:
    """Return a message without what differs from one failure to the next: ids, addresses and numbers."""
    text = _UUID.sub("<id>", " ".join(message.split()))
    return _NUMBER.sub("<n>", _HEXADECIMAL.sub("<id>", text))[:255]


def cause_of(task: str, exception: str, place: str, text: str) -> str:
    """Return the cause's key; a line that moved is the same place."""
    parts = "\0".join((task, exception, _LINE.sub(" in ", place), text))
    return hashlib.sha1(parts.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def _row(failure: Failure) -> TaskFailure:
    message, place = redact_text(storable.text(failure.message, None)), storable.text(failure.place)
    text = normalised(message)
    return TaskFailure(
        task_id=storable.text(failure.task_id),
        retries=storable.count(failure.retries),
        delivery=storable.count(failure.delivery),
        task=storable.text(failure.task),
        kind=storable.text(failure.kind, 16),
        exception=storable.text(failure.exception),
        message=message,
        place=place,
        traceback=redact_text(storable.text(failure.traceback, None)),
        node=storable.text(failure.node),
        host=storable.text(failure.host),
        pid=max(0, failure.pid),
        failed_at=datetime.fromtimestamp(failure.failed_at, UTC),
        seconds=failure.seconds,
        peak_kib=max(0, failure.peak_kib),
        cause=cause_of(failure.task, failure.exception, place, text),
        cause_text=text,
    )
