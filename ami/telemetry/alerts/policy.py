"""What follows from a look: which alert begins, fires, is repeated, is over. No clock, no database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from ami.telemetry.alerts import rules
from ami.telemetry.models import Alert

if TYPE_CHECKING:
    from ami.telemetry.snapshots.shape import FindingFigures

#: A finding that comes back within this time is still the same alert.
QUIET_SECONDS = 300.0
#: So many targets of one finding are alerts of their own; more are one together.
MOST_TARGETS = 20
#: Looks are an interval apart, but for what a process loses between two of its steps.
SLACK = timedelta(seconds=0.5)
GRAVITY = {"unseen": 0, "warning": 1, "error": 2}

Key = tuple[str, str]


class Event(StrEnum):
    """What a notice says; the last two say nothing: an alert was changed, or never fired and is to be deleted."""

    FIRING = "firing"
    REPEAT = "repeat"
    RESOLVED = "resolved"
    TEST = "test"
    CHANGED = "changed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class Patience:
    """``repeat`` is None where nothing is repeated; ``factor`` multiplies durations and the quiet time."""

    repeat: timedelta | None
    factor: float = 1.0

    def of(self, seconds: float) -> timedelta:
        return timedelta(seconds=seconds * self.factor) - SLACK


def seen(found: Iterable[FindingFigures], *, collects_letters: bool = True) -> dict[Key, FindingFigures]:
    """Return those that may alert, one per name and target; of too many targets one with the first sentences."""
    may = [each for each in found if each.level in rules.of(each.name, collects_letters=collects_letters).levels]
    targets: dict[str, set[str]] = {}
    for each in may:
        targets.setdefault(each.name, set()).add(each.target)
    many = {name: len(some) for name, some in targets.items() if len(some) > MOST_TARGETS}
    merged: dict[Key, FindingFigures] = {}
    for each in may:
        own = replace(each, target="") if each.name in many else each
        key = own.name, own.target
        merged[key] = _joined(merged[key], own) if key in merged else own
    for name, count in many.items():
        merged[name, ""] = replace(merged[name, ""], sentence=f"{count} of them: {merged[name, ''].sentence}")
    return merged


def _joined(one: FindingFigures, other: FindingFigures) -> FindingFigures:
    grave = max(one.level, other.level, key=lambda level: GRAVITY.get(level, 0))
    text = one.sentence if other.sentence in one.sentence else f"{one.sentence} {other.sentence}"
    return replace(one, level=grave, sentence=text if len(text) <= 1000 else one.sentence)


def changes(
    alerts: Mapping[Key, Alert],
    found: Mapping[Key, FindingFigures],
    hidden: Collection[str],
    now: datetime,
    patience: Patience,
) -> Iterator[tuple[Alert, Event]]:
    """Apply a look at ``now`` to the open ``alerts``, and yield those it changes, new ones included.

    ``hidden`` are the sources and findings that the look did not see.
    """
    for key in {**alerts, **found}:
        is_merged = (key[0], "") in found
        if key not in found and (is_merged or not {key[0], rules.of(key[0]).source}.isdisjoint(hidden)):
            continue
        alert = alerts.get(key) or Alert(name=key[0], target=key[1], since=now)
        event = _present(alert, found[key], now, patience) if key in found else _absent(alert, now, patience)
        if event is not None:
            yield alert, event


def _present(alert: Alert, found: FindingFigures, now: datetime, patience: Patience) -> Event | None:
    is_new, is_back, alert.absent_since = not alert.level, alert.absent_since is not None, None
    is_graver = GRAVITY.get(found.level, 0) > GRAVITY.get(alert.level, 0)
    event = None
    if alert.noticed_at is None:
        if now - alert.since >= patience.of(rules.of(alert.name).after_seconds):
            event, alert.fired_at = Event.FIRING, now
    elif is_graver or (patience.repeat is not None and now - alert.noticed_at >= patience.repeat):
        event = Event.REPEAT
    if event is not None:
        alert.noticed_at = now
    if event is not None or is_new:
        alert.level, alert.sentence = found.level, found.sentence
        return event or Event.CHANGED
    return Event.CHANGED if is_back else None


def _absent(alert: Alert, now: datetime, patience: Patience) -> Event | None:
    """One look without it is not enough: a worker may have answered too late."""
    if alert.absent_since is None:
        alert.absent_since = now
        return Event.CHANGED
    if alert.fired_at is None:
        return Event.FORGOTTEN
    if now - alert.absent_since < patience.of(QUIET_SECONDS):
        return None
    alert.resolved_at = alert.absent_since
    return Event.RESOLVED
