"""What an operator should look at: new dead letters, a cause that grows, a letter that came back after its replay."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Max, Min, Q
from django.db.models.functions import Now

from ami.queues.models import Letter, TaskFailure

#: A cause grows when it failed so often in the time looked at, and so many times as often as in the time before it.
LEAST, TIMES = 10, 3


@dataclass(frozen=True)
class Sign:
    """``name`` and ``target`` are the finding's: ``letters-new``, ``letters-grow`` or ``letters-back``."""

    name: str
    sentence: str
    count: int
    target: str = ""


def signs(minutes: int) -> list[Sign]:
    """Return what happened in the last ``minutes``; three statements."""
    span = timedelta(minutes=minutes)
    return [*_new(span, minutes), *_growing(span, minutes), *_back(span, minutes)]


def _new(span: timedelta, minutes: int) -> Iterator[Sign]:
    new = Letter.objects.filter(state=Letter.State.DEAD, collected_at__gt=Now() - span)
    for queue, count in new.order_by().values_list("queue").annotate(count=Count("pk")).order_by("queue"):
        sentence = f"{queue} has {_letters(count)} of the last {minutes} minutes; 'manage.py queues letters causes'."
        yield Sign("letters-new", sentence, count, queue)


def _growing(span: timedelta, minutes: int) -> Iterator[Sign]:
    # The worker's clock, not the database's: failures have the time of their machine.
    recent = TaskFailure.objects.filter(failed_at__gt=Now() - 2 * span)
    counted = (
        recent.order_by()
        .values("cause")
        .annotate(
            now=Count("pk", filter=Q(failed_at__gt=Now() - span)),
            before=Count("pk", filter=Q(failed_at__lte=Now() - span)),
            newest=Max("pk"),
        )
        .filter(now__gte=LEAST)
        .order_by("-now", "cause")
    )
    grown = [group for group in counted if group["now"] >= TIMES * group["before"]]
    known = TaskFailure.objects.defer("traceback").in_bulk([group["newest"] for group in grown])
    for group in grown:
        row = known[group["newest"]]
        sentence = (
            f"{row.task} failed {group['now']} times in the last {minutes} minutes, {group['before']} in as many "
            f"before: {row.exception}: {row.cause_text[:120]}; 'manage.py queues failures --cause {row.cause}'."
        )
        yield Sign("letters-grow", sentence, group["now"], f"{row.task} {row.cause}")


def _back(span: timedelta, minutes: int) -> Iterator[Sign]:
    back = Letter.objects.filter(state=Letter.State.DEAD, died__gt=1, collected_at__gt=Now() - span)
    found = back.aggregate(count=Count("pk"), first=Min("pk"))
    if found["count"]:
        sentence = (
            f"{_letters(found['count'])} died again after their replay in the last {minutes} minutes, such as letter "
            f"{found['first']}; 'manage.py queues letters show {found['first']}'."
        )
        yield Sign("letters-back", sentence, found["count"])


def _letters(count: int) -> str:
    return f"{count} dead letter{'' if count == 1 else 's'}"
