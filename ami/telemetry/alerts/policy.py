"""What follows from a look: which alert begins, fires, is repeated, is over. No clock, no database."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from ami.telemetry.alerts import rules

#: An alert that comes back within this time flaps: it must be gone for twice as long before it counts as over, each
#: time it does, up to so many times. Each time it is over is one notice, and they become rare.
FLAP_WINDOW, MOST_DOUBLINGS = timedelta(hours=1), 6
#: So many targets of one finding are alerts of their own; more are one together.
MOST_TARGETS = 20
#: Looks are an interval apart, but for what is lost when the clock is read again.
SLACK = timedelta(seconds=0.5)
GRAVITY = {"unseen": 0, "warning": 1, "error": 2}

Key = tuple[str, str]


class State(StrEnum):
    """Pending: seen, and not yet for long enough."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Event(StrEnum):
    """What a notice says."""

    FIRING = "firing"
    REPEAT = "repeat"
    RESOLVED = "resolved"
    TEST = "test"


@dataclass(frozen=True)
class Seen:
    """A finding of a look that is an alert if it lasts."""

    name: str
    target: str
    level: str
    sentence: str

    @property
    def key(self) -> Key:
        return self.name, self.target


@dataclass(frozen=True)
class Alert:
    """The fields of `ami.telemetry.models.Alert` of the same names."""

    name: str
    target: str
    level: str
    sentence: str
    state: str
    since: datetime
    absent_since: datetime | None = None
    fired_at: datetime | None = None
    resolved_at: datetime | None = None
    noticed_at: datetime | None = None
    flaps: int = 0

    @property
    def key(self) -> Key:
        return self.name, self.target


@dataclass(frozen=True)
class Patience:
    """``interval`` is the time between looks; ``repeat`` is None where nothing is repeated."""

    interval: timedelta
    repeat: timedelta | None
    factor: float = 1.0

    def lasts(self, name: str) -> timedelta:
        """Return how long a finding lasts before it is an alert."""
        return timedelta(seconds=rules.of(name).after_seconds * self.factor)


@dataclass(frozen=True)
class Change:
    """``after`` is None where nothing is left to remember; ``event`` is what receivers get, if anything."""

    before: Alert | None
    after: Alert | None
    event: Event | None = None


def seen(found: Iterable[Seen], *, collects_letters: bool = True) -> dict[Key, Seen]:
    """Return those that may alert, one per name and target; of too many targets one with the first sentences."""
    may = [each for each in found if each.level in rules.of(each.name, collects_letters=collects_letters).levels]
    targets: dict[str, set[str]] = {}
    for each in may:
        targets.setdefault(each.name, set()).add(each.target)
    merged: dict[Key, Seen] = {}
    for each in may:
        own = replace(each, target="") if len(targets[each.name]) > MOST_TARGETS else each
        merged[own.key] = _joined(merged[own.key], own) if own.key in merged else own
    return {
        key: replace(each, sentence=f"{len(targets[each.name])} of them: {each.sentence}")
        if len(targets[each.name]) > MOST_TARGETS
        else each
        for key, each in merged.items()
    }


def _joined(one: Seen, other: Seen) -> Seen:
    grave = max(one.level, other.level, key=lambda level: GRAVITY.get(level, 0))
    text = one.sentence if other.sentence in one.sentence else f"{one.sentence} {other.sentence}"
    return replace(one, level=grave, sentence=text if len(text) <= 1000 else one.sentence)


def changes(
    alerts: Mapping[Key, Alert], found: Mapping[Key, Seen], hidden: Collection[str], now: datetime, patience: Patience
) -> Iterator[Change]:
    """Yield what a look at ``now`` changes; ``hidden`` are the sources and findings that it did not see."""
    for key in {**alerts, **found}:
        is_merged = (key[0], "") in found
        if key not in found and (is_merged or not {key[0], rules.of(key[0]).source}.isdisjoint(hidden)):
            continue
        change = step(alerts.get(key), found.get(key), now, patience)
        if change.event or change.after != change.before:
            yield change


def step(before: Alert | None, found: Seen | None, now: datetime, patience: Patience) -> Change:
    """Return what follows for one alert from one look."""
    if found is None:
        return _absent(before, now, patience)
    if before is None or before.state == State.RESOLVED:
        began = Alert(found.name, found.target, found.level, found.sentence, State.PENDING, now)
        if before is not None:
            began = replace(began, resolved_at=before.resolved_at, flaps=before.flaps)
        return replace(_lasting(began, found, now, patience), before=before)
    return replace(_lasting(replace(before, absent_since=None), found, now, patience), before=before)


def _lasting(alert: Alert, found: Seen, now: datetime, patience: Patience) -> Change:
    if alert.state == State.PENDING:
        if now - alert.since < patience.lasts(alert.name) - SLACK:
            return Change(alert, alert)
        again = alert.resolved_at is not None and alert.since - alert.resolved_at <= FLAP_WINDOW
        fired = replace(alert, state=State.FIRING, fired_at=now, flaps=alert.flaps + 1 if again else 0)
        return Change(alert, _noticed(fired, found, now), Event.FIRING)
    is_graver = GRAVITY.get(found.level, 0) > GRAVITY.get(alert.level, 0)
    is_due = patience.repeat is not None and now - (alert.noticed_at or now) >= patience.repeat
    if is_graver or is_due:
        return Change(alert, _noticed(alert, found, now), Event.REPEAT)
    return Change(alert, alert)


def _noticed(alert: Alert, found: Seen, now: datetime) -> Alert:
    return replace(alert, level=found.level, sentence=found.sentence, noticed_at=now)


def _absent(before: Alert | None, now: datetime, patience: Patience) -> Change:
    if before is None or before.state == State.RESOLVED:
        return Change(before, before)
    if before.absent_since is None:
        return Change(before, replace(before, absent_since=now))
    is_firing = before.state == State.FIRING
    doublings = min(before.flaps, MOST_DOUBLINGS) if is_firing else 0
    if now - before.absent_since < patience.interval * 2**doublings - SLACK:
        return Change(before, before)
    if is_firing:
        over = replace(before, state=State.RESOLVED, resolved_at=now, absent_since=None, noticed_at=now)
        return Change(before, over, Event.RESOLVED)
    if before.resolved_at is not None:  # It had fired before: that is remembered.
        return Change(before, replace(before, state=State.RESOLVED, absent_since=None))
    return Change(before, None)
