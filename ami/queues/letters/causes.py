"""Gives dead letters the cause of their last failure, whichever of the two is written first."""

from collections.abc import Iterable, Sequence

from ami.queues import failures
from ami.queues.models import Letter, TaskFailure

FIELDS = ("cause", "exception", "place", "cause_text")


def explain(rows: Sequence[Letter]) -> None:
    """Set the cause of unsaved letters; one without a failure on record has the broker's reason. One statement."""
    known = failures.latest(row.task_id for row in rows)
    for row in rows:
        _set(row, known.get(row.task_id))


def bind(task_ids: Iterable[str]) -> None:
    """Set the cause of dead letters that were collected before the failures of these tasks were on record.

    One statement where there are none, as mostly.
    """
    letters = list(Letter.objects.filter(task_id__in=list(task_ids), state=Letter.State.DEAD).only("task_id", *FIELDS))
    known = failures.latest(row.task_id for row in letters) if letters else {}
    for row in letters:
        failure = known.get(row.task_id)
        if failure is not None and failure.cause != row.cause:
            _set(row, failure)
            row.save(update_fields=FIELDS)


def _set(row: Letter, failure: TaskFailure | None) -> None:
    if failure is not None:
        row.cause, row.exception = failure.cause, failure.exception
        row.place, row.cause_text = failure.place, failure.cause_text
        return
    row.exception, row.place, row.cause_text = "", "", failures.normalised(row.detail or row.reason)
    row.cause = failures.cause_of(row.task, row.reason, "", row.cause_text)
