"""The port to what the layer above knows of workers and of operators' wishes; `config` connects it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ami.admission.policies import Policy


@dataclass(frozen=True)
class Deployment:
    """``places`` is how many tasks the live workers of each queue run at once; ``workers`` are the starts of all live
    workers (`ami.celery.connection_names`), None where that is unknown. ``limits`` and ``rates`` are numbers that
    operators have set, by the name of the permits or the rate, ``weights`` those of fair keys.
    """

    places: dict[str, int] = field(default_factory=dict)
    workers: frozenset[str] | None = None
    paused_queues: frozenset[str] = frozenset()
    disabled_tasks: frozenset[str] = frozenset()
    disabled_jobs: frozenset[str] = frozenset()
    limits: dict[str, int] = field(default_factory=dict)
    rates: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)

    def limited(self, task: str, policy: Policy) -> Policy:
        """Return the policy of a task with the numbers of now."""
        permits, rate = policy.permits, policy.rate
        if permits is not None and (most := self.limits.get(permits.name or task)) is not None:
            policy = replace(policy, permits=replace(permits, most=most))
        if rate is not None and (most := self.rates.get(rate.name or task)) is not None:
            policy = replace(policy, rate=replace(rate, most=most))
        return policy


_read: Callable[[], Deployment] = Deployment


def connect(read: Callable[[], Deployment]) -> None:
    """Connect what reads it; two statements."""
    global _read
    _read = read


def read() -> Deployment:
    """Return what is known now. Raises django.db.Error."""
    return _read()
