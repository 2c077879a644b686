"""Populates capture sets by their selection method, in idempotent steps."""

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

from django.db.models import QuerySet

from ami.main.models.captures import SourceImage, SourceImageCollection
from ami.queues.slices import Slice

STEP = 1000

#: The options of all methods, and those of each method: name and type of the value.
FILTERS: dict[str, type] = {"deployment_ids": list, "event_ids": list, "date_start": str, "date_end": str}
OPTIONS: dict[str, dict[str, type]] = {
    "full": {},
    "random": {"size": int, "seed": int},
    "interval": {"minute_interval": int},
    "nth": {"nth": int},
    "manual": {"image_ids": list},
}
NEEDED = {"random": "size", "interval": "minute_interval", "nth": "nth", "manual": "image_ids"}
MAX_IDS = 100_000

Row = tuple[int, int, datetime | None]


class OptionError(ValueError):
    """An option that does not fit the method of a capture set; ``option`` is its name."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option}: {message}")
        self.option, self.message = option, message


def validate_options(method: str, options: dict[str, Any]) -> None:
    """Check the options of ``method``.

    Raises:
        OptionError: an unknown, missing or invalid option.
    """
    known = {**FILTERS, **OPTIONS[method]}
    for option, value in options.items():
        if option not in known:
            raise OptionError(option, f"unknown for method '{method}'; known: {', '.join(sorted(known))}.")
        _validate_value(option, value, known[option])
    if (needed := NEEDED.get(method)) and needed not in options:
        raise OptionError(needed, f"method '{method}' needs it.")


def _validate_value(option: str, value: Any, kind: type) -> None:
    # In Python bool is a subclass of int.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise OptionError(option, f"must be {kind.__name__}, not {type(value).__name__}.")
    if kind is int and option != "seed" and not 1 <= value <= 10_000_000:
        raise OptionError(option, "must be between 1 and 10000000.")
    if kind is list and (len(value) > MAX_IDS or any(type(item) is not int for item in value)):
        raise OptionError(option, f"must be a list of at most {MAX_IDS} whole numbers.")
    if kind is str:
        try:
            date.fromisoformat(value)
        except ValueError as error:
            raise OptionError(option, "must be a date YYYY-MM-DD.") from error


def populate(collection: SourceImageCollection, turn: Slice) -> bool:
    """Add missing captures and remove surplus ones until the slice is over; return whether the set is complete.

    The selection depends only on the captures, the options and the seed, so every slice computes the same one, and
    concurrent slices are harmless. Readers see a growing set, never an empty one.
    """
    through = SourceImageCollection.images.through
    chosen = set(choose(collection))
    present = set(through.objects.filter(sourceimagecollection=collection).values_list("sourceimage_id", flat=True))
    for step in _steps(sorted(chosen - present)):
        # Captures may have been deleted meanwhile.
        alive = SourceImage.objects.filter(pk__in=step).values_list("pk", flat=True)
        rows = [through(sourceimagecollection=collection, sourceimage_id=pk) for pk in alive]
        through.objects.bulk_create(rows, ignore_conflicts=True)
        if turn.over():
            return False
    for step in _steps(sorted(present - chosen)):
        through.objects.filter(sourceimagecollection=collection, sourceimage_id__in=step).delete()
        if turn.over():
            return False
    return True


def choose(collection: SourceImageCollection) -> Iterable[int]:
    """Return the keys of the selected captures.

    Raises:
        OptionError: an option does not fit the method.
    """
    validate_options(collection.method, collection.kwargs)
    captures = _filtered(collection).order_by("deployment_id", "timestamp", "pk")
    rows = captures.values_list("pk", "deployment_id", "timestamp").iterator(chunk_size=5000)
    return CHOICES[collection.method](rows, {"seed": collection.pk, **collection.kwargs})


def _filtered(collection: SourceImageCollection) -> "QuerySet[SourceImage]":
    options = collection.kwargs
    captures = SourceImage.objects.filter(project_id=collection.project_id)
    lookups = {
        "deployment_ids": "deployment_id__in",
        "event_ids": "event_id__in",
        "date_start": "timestamp__date__gte",
        "date_end": "timestamp__date__lte",
        "image_ids": "pk__in",
    }
    return captures.filter(**{lookup: options[name] for name, lookup in lookups.items() if name in options})


def _all(rows: Iterator[Row], _: dict[str, Any]) -> list[int]:
    return [row[0] for row in rows]


def _random(rows: Iterator[Row], options: dict[str, Any]) -> list[int]:
    keys = sorted(pk for pk, _, _ in rows)
    # Repeatable, not secret: every slice must draw the same sample.
    return Random(options["seed"]).sample(keys, min(options["size"], len(keys)))  # noqa: S311


def _interval(rows: Iterator[Row], options: dict[str, Any]) -> Iterator[int]:
    """Yield per station the captures that are at least ``minute_interval`` minutes apart."""
    interval = timedelta(minutes=options["minute_interval"])
    station, last = None, None
    for pk, deployment_id, timestamp in rows:
        if timestamp is None:
            continue
        if deployment_id != station or last is None or timestamp - last >= interval:
            station, last = deployment_id, timestamp
            yield pk


def _nth(rows: Iterator[Row], options: dict[str, Any]) -> Iterator[int]:
    """Yield the first and then every nth capture of each station."""
    station, number = None, 0
    for pk, deployment_id, _ in rows:
        if deployment_id != station:
            station, number = deployment_id, 0
        if number % options["nth"] == 0:
            yield pk
        number += 1


CHOICES: dict[str, Callable[[Iterator[Row], dict[str, Any]], Iterable[int]]] = {
    "full": _all,
    "random": _random,
    "interval": _interval,
    "nth": _nth,
    "manual": _all,
}


def _steps(keys: list[int]) -> Iterator[list[int]]:
    return (keys[start : start + STEP] for start in range(0, len(keys), STEP))
