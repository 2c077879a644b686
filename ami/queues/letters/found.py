"""Lists of dead letters: one by one with their trail, by cause, and over time."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db.models import CharField, Count, Max, Min, OuterRef, QuerySet, Subquery
from django.db.models.functions import Cast, Substr

from ami.queues import failures
from ami.queues.models import Letter, LetterEvent, TaskFailure

#: Columns that no list needs; they are large, and one has secrets.
HEAVY = ("body", "original", "headers", "properties", "deaths")
LONGEST_WHY, LONGEST_MESSAGE = 120, 1000
SHOWN = (
    "id",
    "state",
    "queue",
    "task",
    "task_id",
    "reason",
    "detail",
    "exception",
    "place",
    "cause",
    "arguments",
    "retries",
    "died",
    "body_bytes",
    "first_collected_at",
    "collected_at",
    "replayed_at",
)


@dataclass(frozen=True)
class Group:
    """Dead letters with one cause. Where no failure is on record, ``exception`` is the broker's reason."""

    cause: str
    task: str
    exception: str
    place: str
    message: str
    letters: int
    came_back: int
    first_at: datetime
    last_at: datetime


def as_dict(row: Letter) -> dict[str, Any]:
    """Return what lists show of a letter, as JSON takes it."""
    return {name: _plain(getattr(row, name)) for name in SHOWN}


def with_messages(rows: "QuerySet[Letter]") -> "QuerySet[Letter]":
    """Annotate each letter with the message of its own failure, which differs in ids and numbers from its cause's."""
    own = TaskFailure.objects.filter(task_id=OuterRef("task_id"), cause=OuterRef("cause"))
    newest = own.order_by("-failed_at", "-pk").values(shown=Substr("message", 1, LONGEST_MESSAGE))[:1]
    return rows.annotate(message=Subquery(newest))


def why(row: Any, longest: int = LONGEST_WHY) -> str:
    """Return in a line why a letter died: its exception and own message, else what the broker says."""
    message = " ".join((getattr(row, "message", None) or row.cause_text).split())
    told = ": ".join(filter(None, (row.exception, message))) if row.exception else row.detail or row.reason
    return told[:longest]


def groups(rows: "QuerySet[Letter]", limit: int = 50) -> list[Group]:
    """Return the causes of these letters, the most frequent first. Two statements."""
    counts = {"came_back": Max("died") - 1, "first_at": Min("collected_at"), "last_at": Max("collected_at")}
    found = failures.by_cause(rows, Letter.objects.defer(*HEAVY), limit, letters=Count("pk"), **counts)
    return [
        Group(**group, task=row.task, exception=row.exception or row.reason, place=row.place, message=row.cause_text)
        for group, row in found
    ]


def over_time(rows: "QuerySet[Letter]", *, by_day: bool = False) -> list[tuple[datetime, int]]:
    """Return how many of these letters died in each hour or day (UTC) that has any, the newest first.

    By the time's first characters: SQLite has no function of its own that truncates a time.
    """
    span = Substr(Cast("collected_at", CharField()), 1, len("2026-01-31") if by_day else len("2026-01-31 06"))
    counted = rows.order_by().annotate(span=span).values_list("span").annotate(letters=Count("pk")).order_by("-span")
    return [(_moment(text), count) for text, count in counted]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(f"{text[:10]}T{text[11:] or '00'}:00+00:00")


def trail(row: Letter) -> list[dict[str, Any]]:
    """Return what became of a letter, its first death first."""
    events: list[dict[str, Any]] = [
        {"at": row.first_collected_at, "what": "died", "by": "", "why": "", "detail": row.first_reason}
    ]
    names = ("at", "what", "by", "why", "detail")
    events += LetterEvent.objects.filter(letter=row).values(*names)
    return [event | {"at": event["at"].isoformat()} for event in events]


def whole(row: Letter) -> dict[str, Any]:
    """Return a letter with its trail and the tries that failed; no secret of its message."""
    tries = TaskFailure.objects.filter(task_id=row.task_id).order_by("failed_at", "pk")
    missing = "" if tries else f"no failure of it is on record; the broker says: {row.reason}"
    return as_dict(row) | {
        "is_edited": row.original is not None,
        "trail": trail(row),
        "failures": [failures.as_dict(each, with_traceback=True) for each in tries],
        "missing": missing,
    }


def group_as_dict(group: Group) -> dict[str, Any]:
    return {name: _plain(value) for name, value in asdict(group).items()}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
