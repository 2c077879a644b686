"""Computes what is wanted of one worker from the wishes of the operators, without clock, file or log."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ami.celery.worker_records import Wish


@dataclass(frozen=True)
class Identity:
    """What wishes may name to reach a worker; ``queues`` are those that it was started for."""

    node: str
    host: str
    service: str
    queues: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """What holds for one worker.

    ``closed`` are its queues from which no task may begin, each with a sentence that says why. ``concurrency`` None:
    what the worker was started with. Children that started before ``restarted`` (epoch seconds) are replaced.
    """

    closed: dict[str, str] = field(default_factory=dict)
    is_parked: bool = False
    is_stopped: bool = False
    concurrency: int | None = None
    restarted: float = 0.0
    cancelled: frozenset[str] = frozenset()
    disabled_tasks: frozenset[str] = frozenset()
    disabled_jobs: frozenset[str] = frozenset()


def wanted(wishes: Iterable[Wish], identity: Identity, now: float) -> Wanted:
    """Return what is wanted at ``now``, epoch seconds of the clock that the wishes were written by.

    Of the wishes for the worker's node, its host and its service the latest counts. One that is over does not.
    """
    current = [wish for wish in wishes if wish.until is None or wish.until > now]
    own = _latest(current, identity)
    closing = max(
        (own[aspect] for aspect in ("parked", "stopped") if aspect in own), key=lambda wish: wish.since, default=None
    )
    if closing is not None and not closing.value:
        closing = None
    closed = {
        wish.name: _sentence("paused", wish)
        for wish in current
        if wish.kind == "queue" and wish.aspect == "paused" and wish.value and wish.name in identity.queues
    }
    if closing:
        closed = dict.fromkeys(identity.queues, _sentence(closing.aspect, closing))
    size, restarted = own.get("concurrency"), own.get("restarted")
    return Wanted(
        closed=closed,
        is_parked=closing is not None,
        is_stopped=closing is not None and closing.aspect == "stopped",
        concurrency=size.value if size and size.value > 0 else None,
        restarted=float(restarted.value) if restarted else 0.0,
        cancelled=frozenset(wish.name for wish in current if wish.aspect == "cancelled" and wish.value),
        disabled_tasks=_disabled(current, "task name"),
        disabled_jobs=_disabled(current, "job"),
    )


def _disabled(wishes: Iterable[Wish], kind: str) -> frozenset[str]:
    return frozenset(wish.name for wish in wishes if wish.kind == kind and wish.aspect == "disabled" and wish.value)


def _latest(wishes: Iterable[Wish], identity: Identity) -> dict[str, Wish]:
    """Return the latest wish of each aspect that reaches the worker."""
    names = {("node", identity.node), ("host", identity.host), ("service", identity.service)}
    mine = (wish for wish in wishes if (wish.kind, wish.name) in names)
    return {wish.aspect: wish for wish in sorted(mine, key=lambda wish: wish.since)}


def _sentence(what: str, wish: Wish) -> str:
    return f"{what} by {wish.by or 'an operator'}{f': {wish.why}' if wish.why else ''}"
