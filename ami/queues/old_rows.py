"""Deletes the old rows of every table that says how long it keeps them, in slices of bounded statements."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from celery.utils.log import get_logger
from django.db.models import QuerySet

from ami.queues.schedule import modules

logger = get_logger(__name__)

#: The most rows that one statement deletes.
ROWS = 1000


@dataclass(frozen=True)
class Kept:
    """How long the rows of a model are kept: ``purge`` deletes at most ``most`` that are too old, and returns how many.

    ``model`` is its label. docs/operations/records.md says the same in words.
    """

    model: str
    purge: Callable[[], int]
    most: int = ROWS


def declared() -> Iterator[Kept]:
    """Yield what every installed app's module ``retention`` declares."""
    for module in modules("retention"):
        yield from module.RETENTION


def purge(over: Callable[[], bool]) -> tuple[dict[str, int], bool]:
    """Delete a slice of each table in turn until nothing old is left, or ``over``.

    Returns how many rows of each model were deleted, and whether no more are left. A table that cannot be purged, or
    whose files cannot be deleted, does not hold up the others; its error is raised after them.
    """
    due = list(declared())
    deleted: Counter[str] = Counter()
    refused: Exception | None = None
    while due and not over():
        for kept in list(due):
            try:
                count = kept.purge()
            except Exception as error:  # Also what a storage raises.
                logger.warning("Old rows not deleted: %s", str(error).partition("\n")[0], extra={"model": kept.model})
                refused, count = error, 0
            deleted[kept.model] += count
            if count < kept.most:
                due.remove(kept)
            if over():
                break
    found = {model: count for model, count in deleted.items() if count}
    if found:
        text = ", ".join(f"{count:,} of {model}" for model, count in sorted(found.items()))
        logger.info("Old rows deleted: %s", text)
    if refused is not None:
        raise refused
    return found, not due


def delete_some(rows: "QuerySet[Any]", most: int = ROWS) -> int:
    """Delete the first ``most`` of these rows by their keys; return how many they were."""
    keys = list(rows.values_list("pk", flat=True)[:most])
    if keys:
        rows.filter(pk__in=keys).delete()
    return len(keys)


def delete_oldest(rows: "QuerySet[Any]", field: str, before: Any) -> int:
    """Delete those of the `ROWS` rows with the lowest keys that are older; for a table without an index of their age.

    Keys grow with time, so a table whose first rows are young is not read further.
    """
    first = rows.order_by("pk").values_list("pk", field)[:ROWS]
    return delete_some(rows.filter(pk__in=[pk for pk, at in first if at < before]))
