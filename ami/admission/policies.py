"""What a task declares about its calls: values that refuse what contradicts itself where they are written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class PolicyRefused(ValueError):
    """A policy that contradicts itself; the sentence has the fact and the remedy."""


class Scope(StrEnum):
    """Until when a second call of a key is a duplicate."""

    UNTIL_EXECUTING = "until_executing"
    UNTIL_EXECUTED = "until_executed"
    RECENTLY = "recently"


class OnConflict(StrEnum):
    """What becomes of a duplicate.

    ``DROP``: nothing; ``REPLACE``: the waiting call runs with its arguments; ``RESCHEDULE_ONCE``: the same, and one run
    more after the active one; ``RAISE``: the caller gets `DuplicateCall`.
    """

    DROP = "drop"
    REPLACE = "replace"
    RESCHEDULE_ONCE = "reschedule_once"
    RAISE = "raise"


def _choice(kind: type[StrEnum], name: str, value: str) -> None:
    if value not in {str(each) for each in kind}:
        raise PolicyRefused(f"{name} is {value!r}; give one of {', '.join(kind)}.")


def _count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PolicyRefused(f"{name} is {value!r}; give a whole number of 1 or more.")


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        raise PolicyRefused(f"{name} is {value!r}; give a number of seconds above 0.")


@dataclass(frozen=True)
class Unique:
    """One run at a time of all calls whose arguments ``by`` are equal; None: all arguments.

    ``seconds`` is how long a key of the scope ``recently`` stays unique after its run succeeded. ``after``: a run waits
    until no call of its key has come for so many seconds, but not longer than ``at_most`` seconds after the first one,
    where that is given.
    """

    by: tuple[str, ...] | None = None
    until: str = Scope.UNTIL_EXECUTED
    on_conflict: str = OnConflict.DROP
    seconds: float = 0.0
    after: float = 0.0
    at_most: float = 0.0

    def __post_init__(self) -> None:
        _choice(Scope, "Unique(until=...)", self.until)
        _choice(OnConflict, "Unique(on_conflict=...)", self.on_conflict)
        if isinstance(self.by, str) or self.by == ():
            raise PolicyRefused(f"Unique(by=...) is {self.by!r}; give the names of arguments, or None for all of them.")
        if self.until == Scope.RECENTLY:
            _positive("Unique(seconds=...)", self.seconds)
        elif self.seconds:
            raise PolicyRefused("Unique(seconds=...) counts for until='recently' only; leave one of them out.")
        if self.on_conflict == OnConflict.REPLACE and self.until != Scope.UNTIL_EXECUTING:
            raise PolicyRefused(
                f"Unique(on_conflict='replace', until='{self.until}') would lose the arguments of a call that comes "
                "while the task runs; use 'reschedule_once', or until='until_executing'."
            )
        if self.on_conflict == OnConflict.RESCHEDULE_ONCE and self.until == Scope.UNTIL_EXECUTING:
            raise PolicyRefused(
                "Unique(on_conflict='reschedule_once', until='until_executing'): a call that comes while the task runs "
                "is no duplicate there; use 'replace', or until='until_executed'."
            )

        self._check_times()

    def _check_times(self) -> None:
        if self.at_most and not self.after:
            raise PolicyRefused("Unique(at_most=...) limits how long a call waits for others: give after=..., too.")
        if not self.after:
            return
        _positive("Unique(after=...)", self.after)
        if not self.last_wins:
            raise PolicyRefused(
                f"Unique(after=..., on_conflict='{self.on_conflict}') would run with the arguments of a call that was "
                "replaced; use 'replace' or 'reschedule_once'."
            )
        if self.at_most:
            _positive("Unique(at_most=...)", self.at_most)
        if self.at_most and self.at_most < self.after:
            raise PolicyRefused(
                f"Unique(at_most={self.at_most:g}) is less than after={self.after:g}: give as many seconds or more."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return self.by or ()

    @property
    def last_wins(self) -> bool:
        """Whether the arguments of a key's last call are run, not those of its first one."""
        return self.on_conflict in (OnConflict.REPLACE, OnConflict.RESCHEDULE_ONCE)

    @property
    def drops(self) -> bool:
        """Whether calls that come while a run is active, or was recently, are dropped."""
        return self.on_conflict == OnConflict.DROP and self.until != Scope.UNTIL_EXECUTING


class Merge(StrEnum):
    """What becomes of one argument of the calls of a group.

    ``LIST``: their values in the order of the calls, those that are lists one after the other; ``SET``: the same, each
    value once; ``LAST``: that of the last call.
    """

    LIST = "list"
    SET = "set"
    LAST = "last"


@dataclass(frozen=True)
class GroupBy:
    """Calls whose arguments ``by`` are equal are one run, ``seconds`` after the first one or once they are enough.

    Enough are ``most`` calls, or ``most_bytes`` of arguments; a run takes no more. ``merge`` has for arguments by name
    what becomes of their values (`Merge`; ``LAST`` without), or is a function that maps the arguments of the calls, by
    name, to those of the run. ``halves``: a run that fails is tried again as two halves, and so on, until the call that
    fails stands alone; for tasks that may handle an argument twice.
    """

    by: tuple[str, ...]
    seconds: float
    merge: Mapping[str, str] | Callable[[list[dict[str, Any]]], dict[str, Any]]
    most: int = 1000
    most_bytes: int = 1_000_000
    halves: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.by, str) or not self.by:
            raise PolicyRefused(f"GroupBy(by=...) is {self.by!r}; give the names of arguments, as a tuple.")
        _positive("GroupBy(seconds=...)", self.seconds)
        _count("GroupBy(most=...)", self.most)
        _count("GroupBy(most_bytes=...)", self.most_bytes)
        if not callable(self.merge):
            for name, how in self.merge.items():
                _choice(Merge, f"GroupBy(merge={{'{name}': ...}})", how)
            if equal := set(self.merge) & set(self.by):
                raise PolicyRefused(f"GroupBy(merge=...) names {', '.join(sorted(equal))}, which is equal in a group.")

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that the policy reads."""
        return (*self.by, *(() if callable(self.merge) else self.merge))


class OnFailure(StrEnum):
    """What becomes of a key whose first call failed: it waits for what becomes of the letter, or goes on."""

    STOP = "stop"
    SKIP = "skip"


@dataclass(frozen=True)
class InOrder:
    """Calls whose arguments ``by`` are equal run one at a time, in the order of their calls, also over retries."""

    by: tuple[str, ...]
    on_failure: str = OnFailure.STOP

    def __post_init__(self) -> None:
        if isinstance(self.by, str) or not self.by:
            raise PolicyRefused(f"InOrder(by=...) is {self.by!r}; give the names of arguments, as a tuple.")
        _choice(OnFailure, "InOrder(on_failure=...)", self.on_failure)

    @property
    def stops(self) -> bool:
        return self.on_failure == OnFailure.STOP


@dataclass(frozen=True)
class Permits:
    """At most ``most`` runs at once, for each value of the argument ``per``; tasks with one ``name`` share them.

    A call whose argument is None is not limited; the same with `Rate`. A run takes ``cost`` permits, a number or the
    name of an argument that has it; one that costs more than there are takes all of them.
    """

    most: int
    per: str = ""
    name: str = ""
    cost: int | str = 1

    def __post_init__(self) -> None:
        _count("Permits(most)", self.most)
        if not isinstance(self.cost, str) or not self.cost:
            _count("Permits(cost=...)", self.cost)

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that the limit reads."""
        return tuple(filter(None, (self.per, self.cost if isinstance(self.cost, str) else "")))


@dataclass(frozen=True)
class Rate:
    """At most ``most`` runs sent ``per_seconds``, evenly spaced, for each value of the argument ``per``.

    After a pause up to ``burst`` are sent at once.
    """

    most: int
    per_seconds: float
    per: str = ""
    burst: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        _count("Rate(most)", self.most)
        _count("Rate(burst=...)", self.burst)
        _positive("Rate(per_seconds=...)", self.per_seconds)


@dataclass(frozen=True)
class Policy:
    """All that one task declares."""

    unique: Unique | None = None
    permits: Permits | None = None
    rate: Rate | None = None
    fair_by: str = ""
    outbox: bool = False
    group_by: GroupBy | None = None
    in_order_by: InOrder | None = None

    @property
    def key_names(self) -> tuple[str, ...] | None:
        """The arguments that make the key of a call: one run of a key at a time. None: calls have no key.

        Empty: all arguments.
        """
        if self.unique is not None:
            return self.unique.names
        one = self.group_by or self.in_order_by
        return one.by if one is not None else None

    @property
    def stops(self) -> bool:
        """Whether a call that failed stops its key."""
        return self.in_order_by is not None and self.in_order_by.stops

    @property
    def debounces(self) -> bool:
        """Whether a call waits until no other one of its key has come for a while."""
        return self.unique is not None and self.unique.after > 0

    @property
    def merges(self) -> bool:
        """Whether a run takes all calls of its key."""
        return self.unique is not None or self.group_by is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that the policy reads."""
        grouped = self.group_by.names if self.group_by else ()
        return (*(self.key_names or ()), *grouped, *self.limit_names)

    @property
    def limit_names(self) -> tuple[str, ...]:
        """The arguments by which runs are limited and fair."""
        permits = self.permits.names if self.permits else ()
        per = self.rate.per if self.rate else ""
        return (*permits, *filter(None, (per, self.fair_by)))


def policy_of(task: Any) -> Policy | None:
    """Return what a task declares; None without a policy."""
    if not getattr(task, "has_policy", False):
        return None
    return Policy(
        task.unique, task.permits, task.rate, task.fair_by, bool(task.outbox), task.group_by, task.in_order_by
    )
